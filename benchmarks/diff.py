"""`python -m benchmarks diff`: compares history.diff with DeepDiff and jsonpatch."""

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

from annals.demo.simulator import generate_messages
from benchmarks.diff_shapes import ITEM_BYTES, SHAPES, SnapshotPair
from benchmarks.harness import print_json
from history.diff import compare_snapshots
from history.documents.exactjson import Json, dump_canonically, dumps, loads

REAL_FILE: Final = Path(__file__).parents[2] / "shared" / "data" / "countries-history.jsonl.gz"
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
_LEAST_TIMES_DEEPDIFF: Final = 100.0
Figures = dict[str, Any]


def run(real: str = "", messages: int = 20_000, as_json: bool = False) -> int:
    """Measure the comparison of snapshots, print the figures, and return the exit code.

    Args:
        real: The path of a file with gzipped JSON lines with id, version and data. '' means
            REAL_FILE. If the file does not exist, only simulated pairs are measured.
        messages: How many messages to simulate.
    """
    print_progress = Console(stderr=True).print
    figures: Figures = {}
    print_progress(f"simulated pairs from {messages:,} messages ...")
    figures["simulated"] = compare_libraries(simulate_pairs(messages))
    file = Path(real) if real else REAL_FILE
    if file.exists():
        print_progress(f"real pairs from {file} ...")
        figures["real"] = compare_libraries(read_pairs(file))
    else:
        print_progress(f"no real pairs: {file} does not exist")
    print_progress("hard shapes ...")
    figures["shapes"] = {name: measure_shape(make) for name, make in SHAPES.items()}
    figures["targets"] = judge_targets(figures)
    if as_json:
        print_json("diff", figures)
    else:
        print_figures(figures)
    return 0


def simulate_pairs(messages: int) -> list[SnapshotPair]:
    """Return pairs of consecutive versions of simulated documents."""
    rows: list[tuple[str, int, Json]] = []
    for number, message in enumerate(generate_messages(1, datetime(2025, 7, 1, tzinfo=UTC))):
        if number == messages:
            break
        value = loads(message.value)
        if isinstance(value, dict):
            rows.append((str(value["id"]), int(str(value["version"])), value["data"]))
    return pair_neighbours(rows)


def read_pairs(path: Path) -> list[SnapshotPair]:
    """Return pairs of consecutive versions from a file of real versions."""
    with gzip.open(path) as lines:
        rows = [loads(line) for line in lines]
    return pair_neighbours((row["id"], row["version"], row["data"]) for row in rows)  # type: ignore[index, call-overload, misc]


def pair_neighbours(rows: Iterable[tuple[str, int, Json]]) -> list[SnapshotPair]:
    """Return the pairs of consecutive versions of each document.

    Args:
        rows: Id, version number and snapshot of each version, in any order.
    """
    documents: dict[str, list[tuple[int, Json]]] = {}
    for key, version, data in rows:
        documents.setdefault(key, []).append((version, data))
    pairs: list[SnapshotPair] = []
    for versions in documents.values():
        versions.sort(key=lambda numbered: numbered[0])
        snapshots = [data for _, data in versions]
        pairs += pairwise(snapshots)
    return pairs


def compare_libraries(pairs: list[SnapshotPair]) -> Figures:
    """Measure history.diff, jsonpatch and DeepDiff: microseconds by quantile, bytes of the patches.

    DeepDiff and jsonpatch get the values as the json module parses them. DeepDiff is measured only
    on a sample of the pairs.
    """
    our_times, jsonpatch_times, deepdiff_times, ours_for_deepdiff = [], [], [], []
    our_bytes = jsonpatch_bytes = changed = wrong = 0
    every = max(1, len(pairs) // _DEEPDIFF_PAIRS)
    run_deepdiff(*convert_to_plain(({}, {"warm": "up"})))
    for number, (old, new) in enumerate(pairs):
        plain_old, plain_new = convert_to_plain((old, new))
        our_times.append(time_fastest(3, compare_snapshots, old, new))
        jsonpatch_times.append(time_fastest(3, jsonpatch.make_patch, plain_old, plain_new))
        if number % every == 0:
            deepdiff_times.append(time_fastest(3, run_deepdiff, plain_old, plain_new))
            ours_for_deepdiff.append(our_times[-1])
        diff = compare_snapshots(old, new)
        changed += len(diff.changes)
        our_bytes += len(dumps(diff.patch))
        jsonpatch_bytes += len(dumps(jsonpatch.make_patch(plain_old, plain_new).patch))
        applied = jsonpatch.JsonPatch(diff.patch).apply(old)
        wrong += dump_canonically(applied) != dump_canonically(new)
    return {
        "pairs": len(pairs),
        "changes": changed,
        "patches_wrong": wrong,
        "ours_us": compute_quantiles(our_times),
        "jsonpatch_us": compute_quantiles(jsonpatch_times),
        "faster_always": all(
            a < b for a, b in zip(sorted(our_times), sorted(jsonpatch_times), strict=True)
        ),
        "deepdiff_us": compute_quantiles(deepdiff_times),
        "deepdiff_pairs": len(deepdiff_times),
        "times_deepdiff": round(
            statistics.median(deepdiff_times) / statistics.median(ours_for_deepdiff), 1
        ),
        "patch_bytes": our_bytes,
        "jsonpatch_bytes": jsonpatch_bytes,
    }


def measure_shape(make: Callable[[int], SnapshotPair]) -> Figures:
    """Measure how long the comparison of two snapshots takes, for each size of the snapshots.

    DeepDiff and jsonpatch are measured only at 48 KB.

    Args:
        make: Makes a pair of snapshots with about as many items as its argument says.
    """
    our_times: dict[str, float] = {}
    for name, size in _SIZES.items():
        old, new = make(size // ITEM_BYTES)
        our_times[name] = round(
            time_fastest(5 if size < 10**6 else 2, compare_snapshots, old, new) / 1000, 3
        )
    old, new = convert_to_plain(make(_SIZES["48 KB"] // ITEM_BYTES))
    steps = (("96 KB", "48 KB"), ("192 KB", "96 KB"))
    return {
        "ms": our_times,
        "growth": [round(our_times[more] / max(our_times[less], 0.001), 2) for more, less in steps],
        "jsonpatch_ms": try_library(jsonpatch.make_patch, old, new),
        "deepdiff_ms": try_library(run_deepdiff, old, new),
        "changes": len(compare_snapshots(*make(_SIZES["48 KB"] // ITEM_BYTES)).changes),
    }


def try_library(call: Callable[[Any, Any], object], old: Any, new: Any) -> float | None:
    """Return the milliseconds of a call, or None if the library fails."""
    try:
        return round(time_fastest(1, call, old, new) / 1000, 3)
    except RecursionError:
        return None


def run_deepdiff(old: Any, new: Any) -> object:
    return DeepDiff(old, new)


def convert_to_plain(pair: SnapshotPair) -> SnapshotPair:
    """Return a pair of snapshots as the json module parses them, for DeepDiff and jsonpatch."""
    return json.loads(dumps(pair[0])), json.loads(dumps(pair[1]))


def time_fastest(times: int, call: Callable[[Any, Any], object], old: Any, new: Any) -> float:
    """Return the microseconds of the fastest of `times` calls."""
    nanoseconds = []
    for _ in range(times):
        start = time.perf_counter_ns()
        call(old, new)
        nanoseconds.append(time.perf_counter_ns() - start)
    return min(nanoseconds) / 1000


def compute_quantiles(times: list[float]) -> dict[str, float]:
    times = sorted(times)
    return {
        f"{100 * quantile:g}%": round(times[min(len(times) - 1, int(len(times) * quantile))], 1)
        for quantile in _QUANTILES
    }


def judge_targets(figures: Figures) -> dict[str, bool]:
    """Return, for each target, whether this run met it."""
    results: dict[str, bool] = {}
    for name in ("real", "simulated"):
        if name not in figures:
            continue
        pair_figures = figures[name]
        results[f"{name}: every patch gives the new version"] = pair_figures["patches_wrong"] == 0
        results[f"{name}: faster than jsonpatch at every percentile"] = pair_figures[
            "faster_always"
        ]
        results[f"{name}: patches not larger than those of jsonpatch"] = (
            pair_figures["patch_bytes"] <= pair_figures["jsonpatch_bytes"]
        )
        if name == "real":
            results[f"real: median {_LEAST_TIMES_DEEPDIFF:g} times faster than DeepDiff"] = (
                pair_figures["times_deepdiff"] >= _LEAST_TIMES_DEEPDIFF
            )
    shapes = figures["shapes"].values()
    results[f"shapes: none slower than {_SLOWEST_MS:g} ms at 48 KB"] = all(
        shape_figures["ms"]["48 KB"] <= _SLOWEST_MS for shape_figures in shapes
    )
    # The growth of n log n from 400 to 1,600 items, and half as much again for noise.
    limit = 1.5 * 4 * log(1600) / log(400)
    results["shapes: at most n log n from 48 to 192 KB"] = all(
        shape_figures["growth"][0] * shape_figures["growth"][1] <= limit for shape_figures in shapes
    )
    return results


def print_figures(figures: Figures) -> None:
    console = Console(width=132)
    for name in ("simulated", "real"):
        if name in figures:
            console.print(_make_pair_table(name, figures[name]))
    table = Table(title="Hard shapes, milliseconds")
    for heading in ("shape", "changes", *_SIZES, "x2", "x4", "jsonpatch 48 KB", "DeepDiff 48 KB"):
        table.add_column(heading, justify="left" if heading == "shape" else "right")
    for name, shape_figures in figures["shapes"].items():
        row = [
            name,
            shape_figures["changes"],
            *shape_figures["ms"].values(),
            *shape_figures["growth"],
        ]
        table.add_row(
            *map(str, [*row, shape_figures["jsonpatch_ms"], shape_figures["deepdiff_ms"]])
        )
    console.print(table)
    for target, is_met in figures["targets"].items():
        console.print(
            f"[{'green' if is_met else 'red'}]{'met' if is_met else 'MISSED'}[/]  {target}"
        )


def _make_pair_table(name: str, pair_figures: Figures) -> Table:
    table = Table(
        title=(
            f"{pair_figures['pairs']:,} {name} pairs, {pair_figures['changes']:,} changes, "
            "microseconds"
        ),
        caption=(
            f"One walk gives the changes and the patch. Median of DeepDiff over "
            f"{pair_figures['deepdiff_pairs']:,} of the pairs: "
            f"{pair_figures['times_deepdiff']} times ours. "
            f"Patches: {pair_figures['patch_bytes']:,} bytes, those of jsonpatch "
            f"{pair_figures['jsonpatch_bytes']:,} bytes; {pair_figures['patches_wrong']} wrong."
        ),
    )
    table.add_column("")
    for heading in pair_figures["ours_us"]:
        table.add_column(heading, justify="right")
    for label in ("ours", "jsonpatch", "deepdiff"):
        table.add_row(label, *map(str, pair_figures[f"{label}_us"].values()))
    return table
