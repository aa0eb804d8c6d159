"""Tables for a terminal: the distribution that was asked for, and the one that was produced."""

from collections.abc import Iterator
from datetime import UTC, datetime

from history.record import ChangeType
from history.table import Table
from ingest.simulator.children import KINDS
from ingest.simulator.document import APPLICATION
from ingest.simulator.shape import (
    TARGET_MEAN,
    TARGET_PRODUCT_SHARE,
    TARGET_SIZES,
    TARGET_VERSIONS,
)
from ingest.simulator.tally import Tally, named

Row = tuple[str, str, str, str]


def report(tally: Tally, width: int) -> str:
    """Three tables with their titles: sizes, versions of the complete documents, shares. width: of
    a line, in characters."""
    return "\n".join(
        line for title, table in _tables(tally) for line in (title, *table.lines(width))
    )


def _tables(tally: Tally) -> Iterator[tuple[str, Table]]:
    complete = f"{tally.complete:,} of {tally.documents:,} documents complete"
    yield f"Bytes of a message ({tally.messages:,} messages)", _table(_sizes(tally))
    yield f"Versions of a document ({complete})", _table(_versions(tally))
    yield f"Share of the messages ({_span(tally)})", _table(_shares(tally))


def _table(rows: Iterator[Row]) -> Table:
    names = ("target", "produced", "off")
    table = Table("", *names, right=names)
    for row in rows:
        table.add(*row)
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
    for name in KINDS:
        target = f"{TARGET_PRODUCT_SHARE:.0%}" if name == APPLICATION else ""
        yield name, target, f"{tally.share(name):.1%}", ""
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
