"""A node dies while a day is packed or unpacked: no version is lost, doubled or changed.

tests/citus/test_faults.py explains ANNALS_TEST_CITUS_STOP and ANNALS_TEST_CITUS_START.
"""

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import psycopg
import pytest
from django.db import connection

from history.retention import cluster_swap, packing
from history.store.days import days
from history.store.days.canonical import CanonicalRow, Connection
from tests.citus.cluster import Citus, disconnect
from tests.citus.cluster_fixtures import own_labels, tables, transactional_db
from tests.citus.faults.nodes import Address, Nodes
from tests.consuming import wait_until
from tests.db.test_packing import DAY, ROOT, fill, read_blocks, read_rows

__all__ = ["own_labels", "tables", "transactional_db"]

pytestmark = pytest.mark.usefixtures("tables")

Kill: TypeAlias = Callable[[], None]
Rewrite: TypeAlias = Callable[[Connection], object]


def pack(plain: Connection) -> object:
    return packing.pack_day(plain, ROOT, DAY)


def unpack(plain: Connection) -> object:
    return packing.unpack_day(plain, ROOT, DAY)


@pytest.fixture
def nodes(citus: Citus) -> Iterator[Nodes]:
    commands = [os.environ.get(f"ANNALS_TEST_CITUS_{name}", "") for name in ("STOP", "START")]
    if not all(commands):
        pytest.skip("needs ANNALS_TEST_CITUS_STOP and _START: see tests/citus/test_faults.py")
    nodes = Nodes(citus, *commands)
    with nodes.revive_all_afterwards():
        yield nodes


@pytest.fixture
def day(citus: Citus) -> list[CanonicalRow]:
    """The versions of a plain day."""
    with citus.connect() as plain:
        fill(plain)
        return read_rows(plain, ROOT)


def kill_when_filled(monkeypatch: pytest.MonkeyPatch, kill: Kill) -> None:
    """Patch `pack` and `unpack` to call `kill` after filling, before checking the new table."""
    write_rows = packing.DayRewrite._write_rows

    def write_and_kill(self: Any, *arguments: Any, **options: Any) -> bytes:
        digest = write_rows(self, *arguments, **options)
        kill()
        return digest

    monkeypatch.setattr(packing.DayRewrite, "_write_rows", write_and_kill)


def kill_before_swap(monkeypatch: pytest.MonkeyPatch, kill: Kill) -> None:
    """Patch `pack` and `unpack` to call `kill` before the swap, when writers are locked out."""
    digest_keys = cluster_swap.digest_keys
    digests = []

    def digest_and_kill(*arguments: Any, **options: Any) -> object:
        digests.append(digest_keys(*arguments, **options))
        if len(digests) == 2:
            kill()
        return digests[-1]

    monkeypatch.setattr(cluster_swap, "digest_keys", digest_and_kill)


def kill_in_swap(monkeypatch: pytest.MonkeyPatch, kill: Kill) -> None:
    """Patch `pack` and `unpack` to call `kill` after the new table got the old table's name."""
    rename_indexes = days._rename_indexes

    def kill_and_rename(*arguments: Any) -> None:
        kill()
        rename_indexes(*arguments)

    monkeypatch.setattr(days, "_rename_indexes", kill_and_rename)


def kill_before_commit(monkeypatch: pytest.MonkeyPatch, kill: Kill) -> None:
    """Patch `pack` and `unpack` to call `kill` after the swap, before the commit of the swap."""
    note_form = packing.DayRewrite._note_form

    def note_and_kill(*arguments: Any) -> None:
        note_form(*arguments)
        kill()

    monkeypatch.setattr(packing.DayRewrite, "_note_form", note_and_kill)


@pytest.mark.parametrize(
    "moment", [kill_when_filled, kill_before_swap, kill_in_swap, kill_before_commit]
)
@pytest.mark.parametrize("rewrite", [pack, unpack])
def test_pack_and_unpack_change_nothing_when_a_worker_dies(
    rewrite: Rewrite,
    moment: Callable[[pytest.MonkeyPatch, Kill], None],
    citus: Citus,
    nodes: Nodes,
    day: list[CanonicalRow],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if rewrite is unpack:
        with citus.connect() as plain:
            pack(plain)
    [*_, worker] = nodes.list_workers()
    with monkeypatch.context() as patch, citus.connect() as plain:
        moment(patch, lambda: nodes.kill(worker))
        with pytest.raises(psycopg.Error):
            rewrite(plain)
    restart(nodes, worker)
    with citus.connect() as plain:
        assert (read_rows(plain, ROOT), is_packed(plain)) == (day, rewrite is unpack)
        rewrite(plain)
        assert (read_rows(plain, ROOT), is_packed(plain)) == (day, rewrite is pack)


@pytest.mark.parametrize("hanging", ["worker", "coordinator"])
def test_day_is_packed_or_unchanged_when_coordinator_dies_during_commit(
    hanging: str, citus: Citus, nodes: Nodes, day: list[CanonicalRow]
) -> None:
    """The commit of the swap hangs on the node `hanging`. Then the coordinator is killed.

    If a worker hangs, the coordinator has not recorded the commit, so the day stays unchanged. If
    the coordinator hangs, it has recorded the commit, so the day is packed.
    """
    node = nodes.coordinator if hanging == "coordinator" else nodes.list_workers()[-1]
    packing_connection = citus.connect()
    errors: list[BaseException] = []

    def pack_and_note() -> None:
        try:
            pack(packing_connection)
        except psycopg.Error as error:
            errors.append(error)

    packer = threading.Thread(target=pack_and_note)
    hang_at_commit = pytest.MonkeyPatch()
    note_form = packing.DayRewrite._note_form

    def note_and_hang(*arguments: Any) -> None:
        note_form(*arguments)
        nodes.make_commits_hang(node)

    hang_at_commit.setattr(packing.DayRewrite, "_note_form", note_and_hang)
    try:
        packer.start()
        wait_until(lambda: any(nodes.count_prepared().values()), "nothing is prepared")
        threading.Event().wait(1)
        nodes.kill(nodes.coordinator)
        packer.join(60)
    finally:
        hang_at_commit.undo()
        if nodes.coordinator in nodes.dead:
            nodes.revive(nodes.coordinator)
        nodes.let_commits_return(node)
    assert errors
    nodes.recover_prepared()
    disconnect()
    with citus.connect() as plain:
        assert read_rows(plain, ROOT) == day
        assert is_packed(plain) is (hanging == "coordinator")
        pack(plain)
        assert (read_rows(plain, ROOT), is_packed(plain)) == (day, True)


def restart(nodes: Nodes, node: Address) -> None:
    """Start a node, and let Citus commit or roll back the prepared transactions."""
    nodes.revive(node)
    nodes.recover_prepared()
    disconnect()
    connection.ensure_connection()


def is_packed(plain: Connection) -> bool:
    """Return whether the day has blocks. Assert that days.is_packed() returns the same."""
    has_blocks = read_blocks(plain) != []
    assert days.is_packed(plain, ROOT.table, DAY) is has_blocks
    return has_blocks
