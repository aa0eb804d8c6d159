"""Distributed tables, empty, for the tests that read."""

from __future__ import annotations

from history.distribution import DISTRIBUTED_BY
from history.entities import CHILDREN
from tests.citus.cluster import Citus

_KEY = """
SELECT conname FROM pg_constraint WHERE conrelid = to_regclass(%s) AND contype = 'p'
"""


def distribute(citus: Citus) -> None:
    """Make the empty tables distributed ones, and what their statements join reachable."""
    plain = citus.raw()
    for entity in CHILDREN:
        for (name,) in plain.execute(_KEY, [entity.table]).fetchall():
            plain.execute(
                f"ALTER TABLE {entity.table} DROP CONSTRAINT {name},"
                " ADD PRIMARY KEY (id, updated_at, version, product_instance_id)"
            )
    for table, column in DISTRIBUTED_BY.items():
        plain.execute("SELECT create_distributed_table(%s, %s)", [table, column])
    plain.execute("SELECT create_reference_table('recovered_version')")
