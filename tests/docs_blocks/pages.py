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

# This page is left out, because it is generated from the parsers of the commands.
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
    """A code block of a page."""

    page: str  # for example docs/kafka.md
    language: str  # "" if the page names none
    text: str  # without the indent

    @property
    def first_line(self) -> str:
        return self.text.split("\n", 1)[0].strip()


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """One command in a line of a shell block."""

    page: str
    line: str
    words: tuple[str, ...]  # the program comes first


def get_page_name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _read_blocks() -> Iterator[Block]:
    for path in PAGES:
        for _, _, language, text in _BLOCK.findall(path.read_text()):
            yield Block(get_page_name(path), language.strip(), dedent(text))


def _read_spans() -> Iterator[tuple[str, str]]:
    for path in PAGES:
        for text in _SPAN.findall(_BLOCK.sub("", path.read_text())):
            yield get_page_name(path), text


BLOCKS: Final = tuple(_read_blocks())
# The texts in single backticks, each with its page.
SPANS: Final = tuple(_read_spans())


def split_lines(block: Block) -> list[str]:
    """Return the lines that a shell would run, without comments and with continued lines joined."""
    joined = re.sub(r" *\\\n *", " ", block.text).splitlines()
    texts = (re.sub(r"(?:^|\s)#\s.*$", "", line).strip() for line in joined)
    return [line for line in texts if line]


def list_settings(line: str) -> list[str]:
    """Return the environment variables that a line sets, or [] if the line does anything else."""
    match = _SETTING.match(line)
    return [match[1]] if match and line.startswith((match[0], "export ")) else []


def list_commands(page: str, line: str) -> list[ShellCommand]:
    """Return the commands of a line. A line can join several commands with && or |.

    [Brackets] mark an optional part: such a line gives its commands with and without this part. In
    a line of a crontab the command follows after five fields.
    """
    line = _CRON.sub("", line)
    without = re.sub(r" \[[^\]]*\]", "", line)
    variants = [line] if line == without else [without, re.sub(r" \[([^\]]*)\]", r" \1", line)]
    return [ShellCommand(page, line, words) for item in variants for words in _split_words(item)]


def _split_words(line: str) -> Iterator[tuple[str, ...]]:
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
    """Return the words after `annals`, or None if the command line does not run `annals`.

    If the command line has `--`, only the words after `--` count: they run in a container.
    """
    command = words[words.index("--") + 1 :] if "--" in words else words
    return command[1:] if command and Path(command[0]).name == "annals" else None


# The code blocks that the tests of this folder run. Tests of other folders run the rest.
BLOCKS_HERE: Final = [
    block
    for block in BLOCKS
    if block.page not in PAGES_ELSEWHERE and block.first_line not in BLOCKS_ELSEWHERE
]
# The lines of the shell blocks, each with its page.
LINES: Final = [
    (block.page, line)
    for block in BLOCKS_HERE
    if block.language in SHELL
    for line in split_lines(block)
]


def list_blocks(language: str) -> list[Block]:
    """Return the code blocks in this language that the tests of this folder run."""
    return [item for item in BLOCKS_HERE if item.language == language]


def get_block_text(language: str, page: str) -> str:
    [block] = [item for item in list_blocks(language) if item.page == page]
    return block.text
