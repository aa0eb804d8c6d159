"""Prints the sizes of modules and functions: `python scripts/sizes.py [ROOT]`.

`__init__.py` files and migrations do not count. It uses only the standard library, so it can also
measure an older commit: `git worktree add /tmp/before COMMIT`, then `python scripts/sizes.py
/tmp/before`.
"""

import ast
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("annals", "history", "ingest", "outbox")


def modules(root: Path) -> dict[str, int]:
    """Lines by path below root."""
    paths = (path for package in PACKAGES for path in sorted((root / package).rglob("*.py")))
    return {
        str(path.relative_to(root)): len(path.read_text().splitlines())
        for path in paths
        if "migrations" not in path.parts and path.name != "__init__.py"
    }


def functions(root: Path, path: str) -> Iterator[tuple[str, int]]:
    """Name and lines of each function, without its decorators."""
    for node in ast.walk(ast.parse((root / path).read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{path}::{node.name}", (node.end_lineno or node.lineno) - node.lineno + 1


def describe(sizes: dict[str, int]) -> str:
    """Number, median, 95th percentile, and the longest with its name."""
    counts = sorted(sizes.values())
    longest = max(sizes, key=lambda name: sizes[name])
    p95 = counts[int(len(counts) * 0.95)]
    return f"{len(counts):>6} {statistics.median(counts):>8g} {p95:>6} {counts[-1]:>8}  {longest}"


def main(root: Path) -> None:
    lines = modules(root)
    found = dict(size for path in lines for size in functions(root, path))
    print(f"{'lines of':<28}{'number':>6} {'median':>8} {'p95':>6} {'longest':>8}")
    print(f"{'modules':<28}{describe(lines)}")
    print(f"{'functions':<28}{describe(found)}")
    print()
    folders = sorted({str(Path(path).parent) for path in lines})
    for folder in folders:
        inside = {path: count for path, count in lines.items() if str(Path(path).parent) == folder}
        print(f"{folder:<28}{describe(inside)}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[1]))
