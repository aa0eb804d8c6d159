"""One consumer with one and with two writers, next to bare COPY over one and two connections."""

from __future__ import annotations

import statistics
from typing import Any

from annals.bench.harness import Harness, bare_copy
from annals.bench.load import Prepared

WRITERS = (1, 2)


def writers(bench: Harness, batches: list[Prepared], messages: int, rounds: int) -> dict[str, Any]:
    """Medians of the rates and of the CPU seconds for a million messages, all measured in turn in
    each round. gain: the rate with two writers by that with one, of the same round."""
    turns = [_turn(bench, batches, messages) for _ in range(rounds)]
    figures: dict[str, Any] = {
        name: round(statistics.median(turn[name] for turn in turns), 2) for name in turns[0]
    }
    figures["gains"] = [round(turn["gain"], 3) for turn in turns]
    return figures


def _turn(bench: Harness, batches: list[Prepared], messages: int) -> dict[str, float]:
    found: dict[str, float] = {}
    for count in WRITERS:
        bench.empty()
        found[f"copy_{count}_rows_s"] = messages / bare_copy(bench, batches, count)
    for count in WRITERS:
        bench.empty()
        server = bench.server_cpu()
        (run,) = bench.consume(ANNALS_WRITERS=str(count))
        after = bench.server_cpu()
        done = run.summary
        if done["stored"] != messages:
            raise RuntimeError(f"{done['stored']} of {messages} messages were stored")
        found[f"writers_{count}_rows_s"] = messages / done["active_seconds"]
        found[f"writers_{count}_cpu_s_per_million"] = done["cpu_seconds"] / messages * 1e6
        if server is not None and after is not None:
            found[f"writers_{count}_server_cpu_s_per_million"] = (after - server) / messages * 1e6
        found[f"writers_{count}_peak_mb"] = done["peak_mb"]
        found[f"writers_{count}_batch_mean"] = messages / done["batches"]
    found["gain"] = found["writers_2_rows_s"] / found["writers_1_rows_s"]
    found["of_copy_1"] = found["writers_2_rows_s"] / found["copy_1_rows_s"]
    found["of_copy_2"] = found["writers_2_rows_s"] / found["copy_2_rows_s"]
    return found
