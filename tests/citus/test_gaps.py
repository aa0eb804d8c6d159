"""`annals gaps` on distributed tables."""

import pytest

from history.completeness.gaps.scan import find_changed_days
from history.kinds.entities import CHILDREN, get_root
from history.store import distribution
from history.store.days import days
from history.store.days.window import Window
from tests.citus.cluster import Citus
from tests.citus.cluster_fixtures import own_labels
from tests.db.commands import run_command
from tests.db.partitioned import NOW, TODAY, connect_plainly
from tests.db.test_gaps import _django_db_marker, committed

__all__ = ["_django_db_marker", "committed", "own_labels"]

pytestmark = pytest.mark.usefixtures("distributed")


@pytest.mark.parametrize("node", [0, 1, 2])
def test_day_counts_as_changed_after_insert_through_any_node(
    citus: Citus, committed: object, node: int
) -> None:
    """Each node counts the new rows of its own shards."""
    plain = citus.connect()
    for entity in (get_root(), CHILDREN[0]):
        days.create_partition(plain, entity.table, TODAY)
    window = Window.at(NOW, 10, 2)
    before = {(day.entity.name, day.day): day.mark for day in find_changed_days(window)}
    names = "id, version, data, updated_at, client_id, type, product_instance_id"
    with citus.connect(node) as writer:
        writer.execute(
            f"INSERT INTO {CHILDREN[0].table} ({names}) VALUES ('a', 1, '{{}}', %s, 't', 1, 'p')",
            [NOW],
        )
    with connect_plainly() as plain:
        plain.execute("SELECT pg_stat_clear_snapshot()")
    after = {(day.entity.name, day.day): day.mark for day in find_changed_days(window)}
    assert after[get_root().name, TODAY] == before[get_root().name, TODAY]
    assert after[CHILDREN[0].name, TODAY] != before[CHILDREN[0].name, TODAY]


def test_gaps_command_warns_that_statistics_of_nodes_count_new_rows_late(
    citus: Citus, committed: object
) -> None:
    """`annals gaps` finds days with new rows by the row statistics of PostgreSQL.

    So a run of the command directly after an insert can miss the new row.
    """
    assert distribution.is_distributed(citus.connect())
    ran = run_command("gaps")
    assert (ran.code, ran.err) == (0, "")
    assert "The nodes of the cluster count new rows up to a minute late" in ran.out
