"""The memory that packing needs does not grow with the number of versions of a document."""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql

from history.kinds.entities import ROOT
from history.retention import packing
from history.retention.packing import SAMPLE_BYTES, DayRewrite
from history.store.blocks.codec import MOST_BYTES
from history.store.days import canonical, days
from history.store.days.canonical import Connection
from tests.db.partitioned import TABLE
from tests.db.store import T0

pytestmark = pytest.mark.usefixtures("tables")

DAY = T0.date()
MB = 1_000_000


def fill(plain: Connection, versions: int, size: int) -> None:
    """Store versions of one document, each with a snapshot of `size` bytes."""
    days.create_partition(plain, TABLE, DAY)
    plain.execute(
        f"INSERT INTO {TABLE} (id, version, data, updated_at, client_id, type)"
        " SELECT 'large', n, jsonb_build_object('text', repeat(md5(n::text), %s)),"
        " %s + n * interval '1 millisecond', 'top-crm', 1 FROM generate_series(1, %s) AS n",
        [size // 32, T0, versions],
    )


def measure_growth(act: Callable[[], object]) -> int:
    """Return the peak growth of the memory of this process during `act`, in bytes."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = _memory("VmRSS")
    act()
    return _memory("VmHWM") - before


def _memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith(f"{name}:")]
    return int(line.split()[1]) * 1024


@pytest.mark.parametrize(("versions", "size"), [(24, 4 * MB), (20_000, 4_000)], ids=str)
def test_memory_of_packing_is_bounded(versions: int, size: int, plain: Connection) -> None:
    """The day has 80 to 96 MB of snapshots. Only a few copies of one version may be in memory at
    once."""
    fill(plain, versions, size)
    limit = 48 * MB + 8 * size
    before = canonical.compute_digest(plain, ROOT, sql.Identifier(TABLE)).finish()
    acts: dict[str, Callable[[], Any]] = {
        "pack": lambda: packing.pack_day(plain, ROOT, DAY),
        "read": lambda: canonical.compute_digest(plain, ROOT, sql.Identifier(TABLE)),
        "again": lambda: packing.pack_day(plain, ROOT, DAY),
        "unpack": lambda: packing.unpack_day(plain, ROOT, DAY),
    }
    grown = {name: measure_growth(act) for name, act in acts.items()}
    print(versions, size, {name: round(bytes / MB, 1) for name, bytes in grown.items()})
    assert {name: bytes for name, bytes in grown.items() if bytes > limit} == {}
    assert canonical.compute_digest(plain, ROOT, sql.Identifier(TABLE)).finish() == before


def test_size_of_snapshots_sampled_for_dictionary_is_bounded(plain: Connection) -> None:
    fill(plain, 300, 200_000)
    plain.execute(
        f"INSERT INTO {TABLE} (id, version, data, updated_at, client_id, type)"
        " SELECT 'small', n, jsonb_build_object('n', n), %s, 'top-crm', 1"
        " FROM generate_series(1, 50) AS n",
        [T0],
    )
    fill_large = "UPDATE {} SET data = jsonb_build_object('text', repeat('x', 300000))"
    plain.execute(sql.SQL(fill_large + " WHERE version % 10 = 0").format(sql.Identifier(TABLE)))
    rewrite = DayRewrite(plain, ROOT, DAY, 0, lambda _: None)
    sample = rewrite._sample_snapshots(days.locate_day(plain, TABLE, DAY))
    assert len(sample) > 30
    assert sum(map(len, sample)) <= SAMPLE_BYTES
    assert max(map(len, sample)) <= MOST_BYTES


def test_document_larger_than_a_block_is_kept_as_a_plain_row(plain: Connection) -> None:
    fill(plain, 4, MOST_BYTES + 32)
    packing.pack_day(plain, ROOT, DAY)
    row = plain.execute(f"SELECT count(*), count(packed) FROM {TABLE}").fetchone()
    assert row == (4, 0)
