"""What `annals capacity --nodes` adds: shards, workers, a rebalance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import date
from typing import Any

from django.core.management.base import CommandError, OutputWrapper

from history.capacity.cluster import MOST_HOURS, MOST_OF_A_DISK, Cluster, Demand, Plan, plan
from history.capacity.skew import LARGE_VERSIONS, Large, usual_large
from history.counted import counted
from history.partitions.show import size
from history.table import Table, print_table

ONLY_WITH_NODES = ("shards", "move_rate", "large", "large_versions")
SHARDS, MOVE_RATE = 32, 50 << 20


def cluster(options: Mapping[str, Any], demand: Demand) -> Cluster | None:
    """The cluster that the options describe; None without --nodes. Raises CommandError for options
    that do not fit together."""
    nodes = options["nodes"]
    if nodes is None:
        for name in ONLY_WITH_NODES:
            if options[name] is not None:
                option = "--" + name.replace("_", "-")
                raise CommandError(f"{option} is about a cluster: give --nodes too.")
        return None
    shards = options["shards"] or SHARDS
    if shards <= nodes:
        raise CommandError(
            f"{shards} shards leave nothing for one more worker than {nodes}: a shard is on one"
            f" worker. Give --shards {2 * nodes} or more."
        )
    move_rate = MOVE_RATE if options["move_rate"] is None else options["move_rate"]
    if not move_rate:
        raise CommandError("--move-rate 0 moves nothing. Give bytes a second, for example 50M.")
    return Cluster(
        workers=nodes,
        shards=shards,
        move_rate=move_rate,
        disk=options["disk"],
        large=_large(options, demand),
    )


def _large(options: Mapping[str, Any], demand: Demand) -> Large:
    usual = usual_large(demand.rows)
    count = usual.count if options["large"] is None else options["large"]
    large = Large(count, options["large_versions"] or LARGE_VERSIONS)
    if large.rows > demand.rows:
        raise CommandError(
            f"{count:,} applications of {large.versions:,} versions are more than the"
            f" {demand.rows:,.0f} rows of the retention. Give a smaller --large or"
            " --large-versions."
        )
    return large


def planned(options: Mapping[str, Any], demand: Demand) -> tuple[Cluster, Plan] | None:
    """The plan for the cluster of the options; None without --nodes."""
    asked = cluster(options, demand)
    growths = sorted({0.0, options["growth"]})
    return None if asked is None else (asked, plan(asked, demand, growths))


def as_object(cluster: Cluster, plan: Plan) -> dict[str, Any]:
    """For JSON. Sizes in bytes, rates in bytes a second."""
    moved = plan.rebalance
    return {
        "nodes": cluster.workers,
        "shards": cluster.shards,
        "disk": cluster.disk,
        "moveRate": cluster.move_rate,
        "large": {**asdict(cluster.large), "bytes": plan.one_large},
        "shard": _spread(plan.sizes),
        "shardLimit": plan.limit,
        "shardLimitBecauseOf": "disk" if plan.by_disk else "time",
        "worker": _spread(moved.before),
        "tablesOnWorker": plan.most_tables,
        "growth": {
            str(growth): {
                "shardTooLargeOn": _day(each.too_large_on),
                "workerFullOn": _day(each.full_on),
                "shardsForThreeYears": each.shards,
                "workersForThreeYears": each.workers,
            }
            for growth, each in plan.outlooks.items()
        },
        "rebalance": {
            "moves": moved.moves,
            "bytes": moved.bytes,
            "hours": moved.hours,
            "worker": _spread(moved.after),
        },
    }


def show(out: OutputWrapper, cluster: Cluster, plan: Plan) -> None:
    """For people."""
    moved = plan.rebalance
    table = Table("", "smallest", "mean", "largest", right=("smallest", "mean", "largest"))
    for name, sizes in (
        (f"{cluster.shards} shards", plan.sizes),
        (f"{cluster.workers} workers", moved.before),
        (f"{cluster.workers + 1} workers", moved.after),
    ):
        table.add(name, *(size(int(each)) for each in _spread(sizes).values()))
    print_table(out, table)
    out.write(
        "Data and indexes at the present rate, with all days. A shard counts with those of the"
        " other tables that belong to it, which move together."
    )
    large = cluster.large
    if large.count:
        out.write(
            f"{large.count:,} applications have {large.versions:,} versions each,"
            f" {size(int(plan.one_large))}."
        )
    out.write(f"A worker has at least {plan.most_tables:,} tables of days.")
    out.write(f"A shard is too large above {size(int(plan.limit))}: {_why(cluster, plan)}.")
    for growth, each in plan.outlooks.items():
        words = f"Growing by {growth:.0%} a year" if growth else "At the current rate"
        out.write(f"{words}: {_when('shard', 'too large', each.too_large_on)}.")
        if cluster.disk:
            out.write(f"{words}: {_when('disk of a worker', 'full', each.full_on)}.")
        out.write(f"{words}, for three years: {_enough(each.shards, each.workers)}.")
    out.write(
        f"One more worker: {moved.moves} shards move, {size(int(moved.bytes))}, one after the other"
        f" in {moved.hours:.1f} hours at {size(int(cluster.move_rate))} a second."
    )


def _why(cluster: Cluster, plan: Plan) -> str:
    if plan.by_disk and cluster.disk:
        return f"more than {MOST_OF_A_DISK:.0%} of a worker's {size(int(cluster.disk))}"
    rate = size(int(cluster.move_rate))
    return f"to move it takes more than {MOST_HOURS:.0f} hours at {rate} a second"


def _when(what: str, becomes: str, day: date | None) -> str:
    return (
        f"the first {what} is {becomes} on {day}" if day else f"no {what} is {becomes} in ten years"
    )


def _enough(shards: int | None, workers: int | None) -> str:
    if shards is None:
        return "no number of shards is enough"
    return f"{shards} shards" + (f" on {counted(workers, 'worker')}" if workers else "")


def _spread(sizes: Sequence[float]) -> dict[str, float]:
    return {"smallest": min(sizes), "mean": sum(sizes) / len(sizes), "largest": max(sizes)}


def _day(day: date | None) -> str | None:
    return str(day) if day else None
