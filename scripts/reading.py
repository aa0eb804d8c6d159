"""Prints figures about the structure of reading: `python scripts/reading.py [ROOT]`.

See docs/structure.md. Reading is history/timeline with the old service, need-to-know, masks, the
reader of the archive, and the rows that all of these return. The script uses only the standard
library, so it can measure an older commit, too.
"""

import argparse
import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGES = ("annals", "history", "ingest")
READING_PACKAGES = (
    "history.timeline",
    "history.timeline.fallback",
    "history.policy.need_to_know",
    "history.policy.masking.viewer",
    "history.retention.archive.read",
    "history.store.versions",
)
PAGE_MODULES = ("history.timeline.pages", "history.timeline.fetch_page")
DISTRIBUTION_CALL = re.compile(r"\b(is_spread|distribution\.is_distributed)\(")


class ImportTree:
    """The modules of a checkout and their imports, read from their text."""

    def __init__(self, root: Path) -> None:
        files = (file for package in PACKAGES for file in (root / package).rglob("*.py"))
        self.text = {_module_name(root, file): file.read_text() for file in files}
        self.imports = {name: set(self._list_imports(name)) for name in self.text}

    def _list_imports(self, name: str) -> Iterator[str]:
        for node in ast.walk(ast.parse(self.text[name])):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                inner = [f"{node.module}.{alias.name}" for alias in node.names]
                names = [module if module in self.text else node.module for module in inner]
            else:
                continue
            yield from (
                imported for imported in names if imported in self.text and imported != name
            )

    def count_lines(self, names: set[str]) -> int:
        return sum(len(self.text[name].splitlines()) for name in names)

    def find_reachable(self, start: str) -> set[str]:
        """Return the module and all modules that it needs."""
        modules: set[str] = set()
        to_visit = [start]
        while to_visit:
            name = to_visit.pop()
            if name not in modules:
                modules.add(name)
                to_visit += self.imports[name]
        return modules


def _module_name(root: Path, file: Path) -> str:
    parts = file.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def main(root: Path) -> None:
    tree = ImportTree(root)
    reading_modules = {
        name
        for name in tree.text
        if any(f"{name}.".startswith(f"{part}.") for part in READING_PACKAGES)
    }
    # A package that only re-exports names is not counted.
    defining_modules = {
        name
        for name in reading_modules
        if re.search(r"^(class|def) ", tree.text[name], re.MULTILINE)
    }
    import_pairs = [
        (name, other)
        for name in defining_modules
        for other in tree.imports[name] & defining_modules
    ]

    @cache
    def compute_floor(name: str) -> int:
        lower_modules = [
            other for upper, other in import_pairs if upper == name and name not in reachable[other]
        ]
        return 1 + max(map(compute_floor, lower_modules), default=0)

    reachable = {name: tree.reached(name) for name in defining_modules}
    page = tree.reached(next(name for name in PAGE_MODULES if name in tree.text))
    history = [text for name, text in tree.text.items() if name.split(".")[0] == "history"]
    figures = {
        "modules of reading": len(reading_modules),
        "their lines": tree.lines(reading_modules),
        "floors": max(map(compute_floor, defining_modules)),
        "imports among them": len(import_pairs),
        "modules that a page needs": len(page),
        "their lines ": tree.lines(page),
        "context variables in history": sum(text.count("= ContextVar(") for text in history),
        "modules that ask whether the tables are distributed": sum(
            bool(DISTRIBUTION_CALL.search(text)) for text in tree.text.values()
        ),
    }
    for name, count in figures.items():
        print(f"{name:<52}{count:>6,}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    checkout = Path(__file__).resolve().parents[1]
    parser.add_argument("root", type=Path, nargs="?", default=checkout, help="of the checkout")
    main(parser.parse_args().root)
