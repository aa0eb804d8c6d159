"""Tables for a terminal: the distribution that was asked for, and the one that was produced."""

from collections.abc import Iterator
from datetime import UTC, datetime

from rich.console import Group
from rich.table import Table

from history.entities import ENTITIES, ROOT
from history.record import ChangeType
from ingest.simulator.shape import (
    TARGET_MEAN,
    TARGET_PRODUCT_SHARE,
    TARGET_SIZES,
    TARGET_VERSIONS,
)
from ingest.simulator.tally import Tally, named

Row = tuple[str, str, str, str]


def report(tally: Tally) -> Group:
    """Three tables: sizes, versions of the complete documents, shares."""
    complete = f"{tally.complete:,} of {tally.documents:,} documents complete"
    return Group(
        _table(f"Bytes of a message ({tally.messages:,} messages)", _sizes(tally)),
        _table(f"Versions of a document ({complete})", _versions(tally)),
        _table(f"Share of the messages ({_span(tally)})", _shares(tally)),
    )


def _table(title: str, rows: Iterator[Row]) -> Table:
    table = Table(title=title, title_justify="left", min_width=72)
    table.add_column("")
    for heading in ("target", "produced", "off"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def _sizes(tally: Tally) -> Iterator[Row]:
    produced = tally.size_quantiles()
    for quantile, target in TARGET_SIZES.items():
        yield _row(named(quantile), target, produced[quantile])
    yield _row("mean", TARGET_MEAN, round(tally.mean) if tally.messages else None)


def _versions(tally: Tally) -> Iterator[Row]:
    produced = tally.version_quantiles()
    for quantile, target in TARGET_VERSIONS.items():
        yield _row(named(quantile), target, produced[quantile])


def _row(name: str, target: int, produced: int | None) -> Row:
    if produced is None:
        return name, f"{target:,}", "-", "-"
    return name, f"{target:,}", f"{produced:,}", f"{(produced - target) / target:+.1%}"


def _shares(tally: Tally) -> Iterator[Row]:
    for entity in ENTITIES:
        target = f"{TARGET_PRODUCT_SHARE:.0%}" if entity is ROOT else ""
        yield entity.name, target, f"{tally.share(entity.name):.1%}", ""
    for change in ChangeType:
        share = tally.types[change] / tally.messages if tally.messages else 0.0
        yield change.name, "", f"{share:.1%}", ""


def _span(tally: Tally) -> str:
    if tally.oldest is None or tally.newest is None:
        return "none"
    moments = (
        datetime.fromtimestamp(at / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")
        for at in (tally.oldest, tally.newest)
    )
    return " to ".join(moments) + " UTC"
