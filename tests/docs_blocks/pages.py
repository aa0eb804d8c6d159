"""The code blocks of README.md, CONTRIBUTING.md and docs/*.md, and the command lines in them."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Final

from scripts.pages import DOCS, ROOT
from tests.docs_blocks.named import BLOCKS_ELSEWHERE, PAGES_ELSEWHERE

# Its options and actions are generated from the parsers.
GENERATED: Final = DOCS / "commands.md"
PAGES: Final = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(path for path in DOCS.glob("*.md") if path != GENERATED),
]
_BLOCK = re.compile(r"^( *)(`{3,}|~{3,})([^\n`]*)\n(.*?)^ *\2 *$", re.DOTALL | re.MULTILINE)
_SPAN = re.compile(r"`([^`\n]+)`")
_CRON = re.compile(r"^(?:[\d*/,-]+ +){5}(?=\S)")
_SETTING = re.compile(r"(?:export )?([A-Z][A-Z_]+)=\S*")
SHELL: Final = ("", "bash", "sh")


@dataclass(frozen=True, slots=True)
class Block:
    """page: as docs/kafka.md. language: "" if the page has none. text: without the indent."""

    page: str
    language: str
    text: str

    @property
    def first(self) -> str:
        """Its first line."""
        return self.text.split("\n", 1)[0].strip()


@dataclass(frozen=True, slots=True)
class Said:
    """A command, as a line of a shell says it. words: of the command, the program first."""

    page: str
    line: str
    words: tuple[str, ...]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _blocks() -> Iterator[Block]:
    for path in PAGES:
        for _, _, language, text in _BLOCK.findall(path.read_text()):
            yield Block(name(path), language.strip(), dedent(text))


def _spans() -> Iterator[tuple[str, str]]:
    for path in PAGES:
        for text in _SPAN.findall(_BLOCK.sub("", path.read_text())):
            yield name(path), text


BLOCKS: Final = tuple(_blocks())
# Page and text of what is in backticks.
SPANS: Final = tuple(_spans())


def split_lines(block: Block) -> list[str]:
    """What a shell runs one after the other, without comments."""
    joined = re.sub(r" *\\\n *", " ", block.text).splitlines()
    texts = (re.sub(r"(?:^|\s)#\s.*$", "", line).strip() for line in joined)
    return [line for line in texts if line]


def list_settings(line: str) -> list[str]:
    """The variables that the line sets, if it does nothing else."""
    match = _SETTING.match(line)
    return [match[1]] if match and line.startswith((match[0], "export ")) else []


def list_commands(page: str, line: str) -> list[Said]:
    """The commands of a line, joined by &&, | or nothing. What is in [brackets] may be left out:
    such a line is two. A line of a crontab has its command after five fields."""
    line = _CRON.sub("", line)
    without = re.sub(r" \[[^\]]*\]", "", line)
    variants = [line] if line == without else [without, re.sub(r" \[([^\]]*)\]", r" \1", line)]
    return [Said(page, line, words) for item in variants for words in _words(item)]


def _words(line: str) -> Iterator[tuple[str, ...]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="&|>")
    lexer.whitespace_split = True
    words: list[str] = []
    to_file = False
    for word in [*lexer, "&&"]:
        if word in ("&&", "|"):
            yield tuple(words)
            words, to_file = [], False
        elif word == ">":
            to_file = True
        elif not to_file:
            words.append(word)


def select_annals_words(words: tuple[str, ...]) -> tuple[str, ...] | None:
    """The words of the command of Annals, without `annals`; None: it is none. In a container it
    stands after --."""
    command = words[words.index("--") + 1 :] if "--" in words else words
    return command[1:] if command and Path(command[0]).name == "annals" else None


# Those that are checked here.
HERE: Final = [
    block
    for block in BLOCKS
    if block.page not in PAGES_ELSEWHERE and block.first not in BLOCKS_ELSEWHERE
]
# Page and line of what a shell runs.
LINES: Final = [
    (block.page, line) for block in HERE if block.language in SHELL for line in split_lines(block)
]


def list_blocks(language: str) -> list[Block]:
    """The blocks of a language that are checked here."""
    return [item for item in HERE if item.language == language]


def get_block_text(language: str, page: str) -> str:
    [block] = [item for item in list_blocks(language) if item.page == page]
    return block.text
