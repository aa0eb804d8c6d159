"""Every code block of the documentation is checked in this folder, or named in named.py."""

from __future__ import annotations

import pytest

from annals.docs import ROOT
from tests.docs_blocks.checked import LINES, NAMED
from tests.docs_blocks.named import ELSEWHERE, NOT_RUN
from tests.docs_blocks.pages import BLOCKS, SHELL, commands, of_annals, settings


def test_every_block_has_a_language_that_is_checked_or_a_name() -> None:
    checked = {*SHELL, "python", "toml", "json", "properties", "ini", "yaml", "sql"}
    unknown = [
        (each.page, each.first)
        for each in BLOCKS
        if each.language not in checked and (each.page, each.first) not in NAMED
    ]
    assert unknown == [], "check these in tests/docs_blocks, or name them in named.py"


def test_every_line_for_a_shell_is_a_command_of_annals_a_setting_or_named() -> None:
    """A command of Annals in a pod is checked although `kubectl` is named."""
    unknown = [
        (page, line)
        for page, line in LINES
        if (page, line) not in NAMED
        and not settings(line)
        and not all(of_annals(said.words) for said in commands(page, line))
    ]
    assert unknown == [], "name these in tests/docs_blocks/named.py, with a reason"


def test_what_is_named_is_on_its_page() -> None:
    there = {(each.page, each.first) for each in BLOCKS} | set(LINES)
    assert [each for each in NAMED if each not in there] == []
    assert all(NOT_RUN.values())


@pytest.mark.parametrize("test", sorted({*ELSEWHERE.values()}))
def test_the_tests_that_run_them_exist(test: str) -> None:
    file, _, name = test.partition("::")
    assert f"\ndef {name or 'test_'}" in (ROOT / file).read_text()
