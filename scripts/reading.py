"""Prints how reading is built: `python scripts/reading.py [ROOT]`. See docs/structure.md.

Reading is history/timeline with the old service, need-to-know, the masks of a reader, the
archive's reader and the rows that all of these give. Only the standard library is used, so that it
measures an older commit too.
"""

import argparse
import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGES = ("annals", "history", "ingest")
READING = (
    "history.timeline",
    "history.fallback",
    "history.need_to_know",
    "history.masking.viewer",
    "history.archive.read",
    "history.versions",
)
PAGE = ("history.timeline.pages", "history.timeline.page")
DISTRIBUTED = re.compile(r"\b(apart|distribution\.active)\(")


class Tree:
    """The modules of a checkout and what they import, from their text."""

    def __init__(self, root: Path) -> None:
        files = (file for package in PACKAGES for file in (root / package).rglob("*.py"))
        self.text = {_name(root, file): file.read_text() for file in files}
        self.imports = {name: set(self._imported(name)) for name in self.text}

    def _imported(self, name: str) -> Iterator[str]:
        for node in ast.walk(ast.parse(self.text[name])):
            if isinstance(node, ast.Import):
                found = [each.name for each in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                inner = [f"{node.module}.{each.name}" for each in node.names]
                found = [each if each in self.text else node.module for each in inner]
            else:
                continue
            yield from (each for each in found if each in self.text and each != name)

    def lines(self, names: set[str]) -> int:
        return sum(len(self.text[name].splitlines()) for name in names)

    def reached(self, start: str) -> set[str]:
        """The module and all that it needs."""
        found: set[str] = set()
        left = [start]
        while left:
            name = left.pop()
            if name not in found:
                found.add(name)
                left += self.imports[name]
        return found


def _name(root: Path, file: Path) -> str:
    parts = file.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def main(root: Path) -> None:
    tree = Tree(root)
    rooms = {
        name for name in tree.text if any(f"{name}.".startswith(f"{part}.") for part in READING)
    }
    # A package that only hands names on is no room.
    drawn = {name for name in rooms if re.search(r"^(class|def) ", tree.text[name], re.MULTILINE)}
    arrows = [(name, other) for name in drawn for other in tree.imports[name] & drawn]

    @cache
    def floor(name: str) -> int:
        below = [other for upper, other in arrows if upper == name and name not in deep[other]]
        return 1 + max(map(floor, below), default=0)

    deep = {name: tree.reached(name) for name in drawn}
    page = tree.reached(next(name for name in PAGE if name in tree.text))
    history = [text for name, text in tree.text.items() if name.split(".")[0] == "history"]
    figures = {
        "modules of reading": len(rooms),
        "their lines": tree.lines(rooms),
        "floors": max(map(floor, drawn)),
        "imports among them": len(arrows),
        "modules that a page needs": len(page),
        "their lines ": tree.lines(page),
        "context variables in history": sum(text.count("= ContextVar(") for text in history),
        "modules that ask whether the tables are distributed": sum(
            bool(DISTRIBUTED.search(text)) for text in tree.text.values()
        ),
    }
    for name, count in figures.items():
        print(f"{name:<52}{count:>6,}")


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    here = Path(__file__).resolve().parents[1]
    asked.add_argument("root", type=Path, nargs="?", default=here, help="of the checkout")
    main(asked.parse_args().root)
