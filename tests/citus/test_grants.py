"""Rights of the logins on all nodes."""

from __future__ import annotations

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection

from annals.access import cluster_functions
from annals.access.grants import CONSUMER, WEB
from annals.observe.server_checks import _of_cluster
from history.entities import root
from tests.citus.cluster import Citus, disconnect


def test_rights_are_given_on_all_nodes_and_again(distributed: Citus) -> None:
    call_command("grants", apply=True)
    call_command("grants", apply=True)
    table = root().table
    rights = "SELECT " + ", ".join(
        f"has_table_privilege(%s, %s, '{each}')" for each in ("SELECT", "INSERT", "DELETE")
    )
    for node in range(len(distributed.urls)):
        assert distributed.rows(rights, [WEB, table] * 3, node) == [(True, False, False)]
        assert distributed.rows(rights, [CONSUMER, table] * 3, node) == [(True, True, False)]


# What changes what the nodes know of each other, and asks for no right of the caller but to be one.
NODES_ONLY = (
    "citus_internal.delete_placement_metadata({placement})",
    "citus_internal_delete_placement_metadata({placement})",
    "citus_internal.add_tenant_schema('public'::regnamespace, 1)",
    "citus_internal.update_none_dist_table_metadata('ingest_ledger'::regclass, 't', 1, false)",
)


@pytest.mark.parametrize("role", [WEB, CONSUMER])
def test_a_login_that_says_that_it_is_a_node_changes_no_metadata(
    distributed: Citus, role: str
) -> None:
    call_command("grants", apply=True)
    [(placement,)] = distributed.rows(
        "SELECT min(placementid) FROM pg_dist_placement JOIN pg_dist_shard USING (shardid)"
        " WHERE logicalrelid = %s::regclass",
        [root().table],
    )
    for url in distributed.urls:
        name = "citus_internal gpid=10000000001"
        with psycopg.connect(url, application_name=name) as plain:
            plain.execute(f"SET ROLE {role}")
            plain.execute("SELECT assign_distributed_transaction_id(0, 999, now())")
            for each in NODES_ONLY:
                with pytest.raises(psycopg.errors.InsufficientPrivilege), plain.transaction():
                    plain.execute("SELECT " + each.format(placement=placement))
            plain.rollback()


def test_the_check_names_nodes_whose_functions_everybody_may_call(distributed: Citus) -> None:
    call_command("grants", apply=True)
    assert not cluster_functions.open_to_all()
    assert not [fault for fault in _of_cluster(connection) if fault.number in (15, 16)]
    worker = distributed.raw(1)
    function = "FUNCTION citus_internal.delete_placement_metadata(bigint)"
    worker.execute(f"GRANT EXECUTE ON {function} TO PUBLIC")
    assert [fault.number for fault in _of_cluster(connection) if fault.number == 16] == [16]
    call_command("grants", apply=True)
    assert not cluster_functions.open_to_all()


def test_the_check_names_settings_of_workers(distributed: Citus) -> None:
    worker = distributed.raw(1)
    worker.execute("SET citus.enable_ddl_propagation TO off")
    worker.execute(f"ALTER DATABASE {worker.info.dbname} SET log_statement = 'all'")
    disconnect()
    try:
        found = [fault.text for fault in _of_cluster(connection) if fault.number == 14]
    finally:
        worker.execute(f"ALTER DATABASE {worker.info.dbname} RESET log_statement")
    [text] = [each for each in found if f"{worker.info.host}:{worker.info.port}:" in each]
    assert "log_statement = all" in text
