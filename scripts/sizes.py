"""Prints the sizes of modules, functions, tests and docs: `python scripts/sizes.py [ROOT]`.

`__init__.py` files and migrations count only in the lines of the product. The script uses only the
standard library, so it can also measure an older commit: `git worktree add /tmp/before COMMIT`,
then `python scripts/sizes.py /tmp/before`.
"""

import argparse
import ast
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path

PACKAGES = ("annals", "history", "ingest", "outbox")
# Pages that `python -m scripts.pages` writes whole.
GENERATED = ("commands.md", "metrics.md", "settings.md")


def count_module_lines(root: Path) -> dict[str, int]:
    """Return the number of lines of each module by its path below the root."""
    paths = (path for package in PACKAGES for path in sorted((root / package).rglob("*.py")))
    return {
        str(path.relative_to(root)): len(path.read_text().splitlines())
        for path in paths
        if "migrations" not in path.parts and path.name != "__init__.py"
    }


def list_function_lines(root: Path, path: str) -> Iterator[tuple[str, int]]:
    """Yield the name and the number of lines of each function, without its decorators."""
    for node in ast.walk(ast.parse((root / path).read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{path}::{node.name}", (node.end_lineno or node.lineno) - node.lineno + 1


def describe_sizes(sizes: dict[str, int]) -> str:
    """Return the count, median, 95th percentile and longest of the sizes, as a line."""
    counts = sorted(sizes.values())
    longest = max(sizes, key=lambda name: sizes[name])
    p95 = counts[int(len(counts) * 0.95)]
    return f"{len(counts):>6} {statistics.median(counts):>8g} {p95:>6} {counts[-1]:>8}  {longest}"


def count_lines_below(folders: Iterable[Path]) -> int:
    """Return the lines of all Python files below the folders, as wc counts them."""
    files = (file for folder in folders for file in folder.rglob("*.py"))
    return sum(file.read_bytes().count(b"\n") for file in files)


def count_words(files: Iterable[Path]) -> int:
    return sum(len(file.read_text().split()) for file in files)


def count_totals(root: Path) -> dict[str, int]:
    docs, decisions = root / "docs", sorted((root / "docs" / "decisions").glob("[0-9]*.md"))
    files = [file for package in PACKAGES for file in (root / package).rglob("*.py")]
    return {
        "lines of the product": count_lines_below(root / package for package in PACKAGES),
        "modules": len(count_module_lines(root)),
        "Python files": len(files),
        "lines of tests": count_lines_below([root / "tests"]),
        "lines of benchmarks": count_lines_below([root / "benchmarks"]),
        "words of docs": count_words(
            page for page in docs.glob("*.md") if page.name not in GENERATED
        ),
        "words of CHANGELOG": count_words([root / "CHANGELOG.md"]),
        "decisions": len(decisions),
        "words of decisions": count_words(decisions),
    }


def main(root: Path) -> None:
    for name, count in count_totals(root).items():
        print(f"{name:<28}{count:>7,}")
    print()
    lines = count_module_lines(root)
    function_lines = dict(size for path in lines for size in list_function_lines(root, path))
    print(f"{'lines of':<28}{'number':>6} {'median':>8} {'p95':>6} {'longest':>8}")
    print(f"{'modules':<28}{describe_sizes(lines)}")
    print(f"{'functions':<28}{describe_sizes(function_lines)}")
    print()
    folders = sorted({str(Path(path).parent) for path in lines})
    for folder in folders:
        folder_lines = {
            path: count for path, count in lines.items() if str(Path(path).parent) == folder
        }
        print(f"{folder:<28}{describe_sizes(folder_lines)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    checkout = Path(__file__).resolve().parents[1]
    parser.add_argument("root", type=Path, nargs="?", default=checkout, help="of the checkout")
    main(parser.parse_args().root)
