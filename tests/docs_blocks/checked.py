"""The blocks and lines that this folder checks: those that named.py does not name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.docs_blocks.named import ELSEWHERE, NOT_RUN
from tests.docs_blocks.pages import BLOCKS, SHELL, Block, lines

NAMED: Final[Mapping[tuple[str, str], str]] = {**ELSEWHERE, **NOT_RUN}
# Page and line of what a shell runs, but for blocks that are named as a whole, by a comment.
LINES: Final = [
    (block.page, line)
    for block in BLOCKS
    if block.language in SHELL
    and not (block.first[:1] == "#" and (block.page, block.first) in NAMED)
    for line in lines(block)
]


def of(language: str) -> list[Block]:
    """The blocks of a language that are checked here."""
    found = [each for each in BLOCKS if each.language == language]
    return [each for each in found if (each.page, each.first) not in NAMED]


def one(language: str, page: str) -> str:
    [block] = [each for each in of(language) if each.page == page]
    return block.text
