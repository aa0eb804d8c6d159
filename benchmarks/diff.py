"""`python -m benchmarks diff`: history.diff next to DeepDiff and jsonpatch."""

import gzip
import json
import statistics
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from itertools import pairwise
from math import log
from pathlib import Path
from typing import Any, Final

import jsonpatch
from deepdiff import DeepDiff
from rich.console import Console
from rich.table import Table

from annals.demo.simulator import stream
from benchmarks.diff_shapes import ITEM_BYTES, SHAPES, Pair
from benchmarks.harness import print_json
from history.diff import compare
from history.documents.exactjson import Json, canonical, dumps, loads

REAL: Final = Path(__file__).parents[2] / "shared" / "data" / "countries-history.jsonl.gz"
_QUANTILES: Final = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1.0)
_DEEPDIFF_PAIRS: Final = 500
_SIZES: Final = {
    "36 KB": 36_000,
    "48 KB": 48_000,
    "96 KB": 96_000,
    "192 KB": 192_000,
    "1 MB": 10**6,
}
_SLOWEST_MS: Final = 20.0
_TIMES_DEEPDIFF: Final = 100.0
Figures = dict[str, Any]


def run(real: str = "", messages: int = 20_000, as_json: bool = False) -> int:
    """Measure and print. real: path of gzipped JSON lines with id, version and data; '' means REAL,
    and real pairs are left out if the file does not exist. messages: number of simulated
    messages."""
    say = Console(stderr=True).print
    figures: Figures = {}
    say(f"simulated pairs from {messages:,} messages ...")
    figures["simulated"] = side_by_side(simulated(messages))
    file = Path(real) if real else REAL
    if file.exists():
        say(f"real pairs from {file} ...")
        figures["real"] = side_by_side(recorded(file))
    else:
        say(f"no real pairs: {file} does not exist")
    say("hard shapes ...")
    figures["shapes"] = {name: shape(make) for name, make in SHAPES.items()}
    figures["targets"] = targets(figures)
    if as_json:
        print_json("diff", figures)
    else:
        show(figures)
    return 0


def simulated(messages: int) -> list[Pair]:
    """Pairs of consecutive versions of simulated documents."""
    rows: list[tuple[str, int, Json]] = []
    for number, message in enumerate(stream(1, datetime(2025, 7, 1, tzinfo=UTC))):
        if number == messages:
            break
        value = loads(message.value)
        if isinstance(value, dict):
            rows.append((str(value["id"]), int(str(value["version"])), value["data"]))
    return neighbours(rows)


def recorded(path: Path) -> list[Pair]:
    """Pairs of consecutive versions from a file."""
    with gzip.open(path) as lines:
        rows = [loads(line) for line in lines]
    return neighbours((row["id"], row["version"], row["data"]) for row in rows)  # type: ignore[index, call-overload, misc]


def neighbours(rows: Iterable[tuple[str, int, Json]]) -> list[Pair]:
    documents: dict[str, list[tuple[int, Json]]] = {}
    for key, version, data in rows:
        documents.setdefault(key, []).append((version, data))
    pairs: list[Pair] = []
    for versions in documents.values():
        versions.sort(key=lambda each: each[0])
        datas = [data for _, data in versions]
        pairs += pairwise(datas)
    return pairs


def side_by_side(pairs: list[Pair]) -> Figures:
    """Microseconds by quantile, and the bytes of the patches. The libraries get the values of the
    json module."""
    ours, theirs, deep, ours_there = [], [], [], []
    bytes_ours = bytes_theirs = changed = wrong = 0
    every = max(1, len(pairs) // _DEEPDIFF_PAIRS)
    deepdiff(*plain(({}, {"warm": "up"})))
    for number, (old, new) in enumerate(pairs):
        plain_old, plain_new = plain((old, new))
        ours.append(best(3, compare, old, new))
        theirs.append(best(3, jsonpatch.make_patch, plain_old, plain_new))
        if number % every == 0:
            deep.append(best(3, deepdiff, plain_old, plain_new))
            ours_there.append(ours[-1])
        diff = compare(old, new)
        changed += len(diff.changes)
        bytes_ours += len(dumps(diff.patch))
        bytes_theirs += len(dumps(jsonpatch.make_patch(plain_old, plain_new).patch))
        applied = jsonpatch.JsonPatch(diff.patch).apply(old)
        wrong += canonical(applied) != canonical(new)
    return {
        "pairs": len(pairs),
        "changes": changed,
        "patches_wrong": wrong,
        "ours_us": quantiles(ours),
        "jsonpatch_us": quantiles(theirs),
        "faster_always": all(a < b for a, b in zip(sorted(ours), sorted(theirs), strict=True)),
        "deepdiff_us": quantiles(deep),
        "deepdiff_pairs": len(deep),
        "times_deepdiff": round(statistics.median(deep) / statistics.median(ours_there), 1),
        "patch_bytes": bytes_ours,
        "jsonpatch_bytes": bytes_theirs,
    }


def shape(make: Callable[[int], Pair]) -> Figures:
    """Milliseconds at each size; those of the libraries only at 48 KB."""
    ours: dict[str, float] = {}
    for name, size in _SIZES.items():
        old, new = make(size // ITEM_BYTES)
        ours[name] = round(best(5 if size < 10**6 else 2, compare, old, new) / 1000, 3)
    old, new = plain(make(_SIZES["48 KB"] // ITEM_BYTES))
    steps = (("96 KB", "48 KB"), ("192 KB", "96 KB"))
    return {
        "ms": ours,
        "growth": [round(ours[more] / max(ours[less], 0.001), 2) for more, less in steps],
        "jsonpatch_ms": tried(jsonpatch.make_patch, old, new),
        "deepdiff_ms": tried(deepdiff, old, new),
        "changes": len(compare(*make(_SIZES["48 KB"] // ITEM_BYTES)).changes),
    }


def tried(call: Callable[[Any, Any], object], old: Any, new: Any) -> float | None:
    """Milliseconds; None if the library fails."""
    try:
        return round(best(1, call, old, new) / 1000, 3)
    except RecursionError:
        return None


def deepdiff(old: Any, new: Any) -> object:
    return DeepDiff(old, new)


def plain(pair: Pair) -> Pair:
    """The pair as the json module reads it, which the libraries expect."""
    return json.loads(dumps(pair[0])), json.loads(dumps(pair[1]))


def best(times: int, call: Callable[[Any, Any], object], old: Any, new: Any) -> float:
    """Microseconds of the fastest of `times` calls."""
    found = []
    for _ in range(times):
        start = time.perf_counter_ns()
        call(old, new)
        found.append(time.perf_counter_ns() - start)
    return min(found) / 1000


def quantiles(times: list[float]) -> dict[str, float]:
    times = sorted(times)
    return {
        f"{100 * quantile:g}%": round(times[min(len(times) - 1, int(len(times) * quantile))], 1)
        for quantile in _QUANTILES
    }


def targets(figures: Figures) -> dict[str, bool]:
    """The targets of the comparison, and whether this run met them."""
    found: dict[str, bool] = {}
    for name in ("real", "simulated"):
        if name not in figures:
            continue
        each = figures[name]
        found[f"{name}: every patch gives the new version"] = each["patches_wrong"] == 0
        found[f"{name}: faster than jsonpatch at every percentile"] = each["faster_always"]
        found[f"{name}: patches not larger than those of jsonpatch"] = (
            each["patch_bytes"] <= each["jsonpatch_bytes"]
        )
        if name == "real":
            found[f"real: median {_TIMES_DEEPDIFF:g} times faster than DeepDiff"] = (
                each["times_deepdiff"] >= _TIMES_DEEPDIFF
            )
    shapes = figures["shapes"].values()
    found[f"shapes: none slower than {_SLOWEST_MS:g} ms at 48 KB"] = all(
        each["ms"]["48 KB"] <= _SLOWEST_MS for each in shapes
    )
    # n log n for 400 items, plus half of it for noise of the clock
    limit = 1.5 * 4 * log(1600) / log(400)
    found["shapes: at most n log n from 48 to 192 KB"] = all(
        each["growth"][0] * each["growth"][1] <= limit for each in shapes
    )
    return found


def show(figures: Figures) -> None:
    console = Console(width=132)
    for name in ("simulated", "real"):
        if name in figures:
            console.print(_table_of_pairs(name, figures[name]))
    table = Table(title="Hard shapes, milliseconds")
    for heading in ("shape", "changes", *_SIZES, "x2", "x4", "jsonpatch 48 KB", "DeepDiff 48 KB"):
        table.add_column(heading, justify="left" if heading == "shape" else "right")
    for name, each in figures["shapes"].items():
        row = [name, each["changes"], *each["ms"].values(), *each["growth"]]
        table.add_row(*map(str, [*row, each["jsonpatch_ms"], each["deepdiff_ms"]]))
    console.print(table)
    for target, met in figures["targets"].items():
        console.print(f"[{'green' if met else 'red'}]{'met' if met else 'MISSED'}[/]  {target}")


def _table_of_pairs(name: str, each: Figures) -> Table:
    table = Table(
        title=f"{each['pairs']:,} {name} pairs, {each['changes']:,} changes, microseconds",
        caption=(
            f"One walk gives the changes and the patch. Median of DeepDiff over "
            f"{each['deepdiff_pairs']:,} of the pairs: {each['times_deepdiff']} times ours. "
            f"Patches: {each['patch_bytes']:,} bytes, those of jsonpatch "
            f"{each['jsonpatch_bytes']:,} bytes; {each['patches_wrong']} wrong."
        ),
    )
    table.add_column("")
    for heading in each["ours_us"]:
        table.add_column(heading, justify="right")
    for label in ("ours", "jsonpatch", "deepdiff"):
        table.add_row(label, *map(str, each[f"{label}_us"].values()))
    return table
