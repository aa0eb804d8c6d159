"""The documented JSON of each command: where it is declared, as text for docs/commands.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final

MODULES: Final = ("annals.management.shapes", "history.management.shapes",
                  "ingest.management.shapes")  # fmt: skip
INDENT: Final = "  "
WIDTH: Final = 96


def shapes() -> dict[str, Any]:
    """By command, action and option: `ledger`, `partitions list`, `quarantine list --ids`."""
    return {
        words: shape for module in MODULES for words, shape in import_module(module).SHAPES.items()
    }


def section(words: str) -> Iterator[str]:
    """The lines of docs/commands.md about the JSON of a command and of its options."""
    for name, shape in sorted(shapes().items()):
        if name == words or name.startswith(f"{words} --"):
            option = name.removeprefix(words).strip()
            given = f"{option} --json" if option else "--json"
            lines = ", a line for each" if words in LINES else ""
            yield f"\nWith `{given}`{lines}:\n\n```\n{text(shape)}\n```"


# Their output is JSON lines.
LINES: Final = (
    "gaps list",
    *(f"partitions {action}" for action in ("adopt", "forget", "release", "restore", "seal")),
)


def text(shape: Any, before: str = "") -> str:
    """A shape as it is read: kinds of values without quotes, names with them."""
    match shape:
        case str():
            return shape
        case tuple():
            return " or ".join(text(each, before) for each in shape)
        case list():
            return _within("[", [text(each, before + INDENT) for each in shape], "]", before)
        case Mapping():
            parts = [f'"{name}": {text(kind, before + INDENT)}' for name, kind in shape.items()]
            return _within("{", parts, "}", before)
    raise TypeError(shape)


def _within(opening: str, parts: list[str], closing: str, before: str) -> str:
    line = f"{opening}{', '.join(parts)}{closing}"
    if "\n" not in line and len(before) + len(line) <= WIDTH - 20:
        return line
    inner = f",\n{before}{INDENT}".join(parts)
    return f"{opening}\n{before}{INDENT}{inner}\n{before}{closing}"
