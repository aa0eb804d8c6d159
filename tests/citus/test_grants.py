"""`annals grants` and the system check of server settings reach all nodes of a cluster."""

from django.core.management import call_command
from django.db import connection

from annals.access.grants import CONSUMER, WEB
from annals.operations.server_checks import _find_faults_of_servers
from history.kinds.entities import get_root
from tests.citus.cluster import Citus, disconnect


def test_grants_command_gives_rights_on_all_nodes_and_can_be_repeated(distributed: Citus) -> None:
    call_command("grants", apply=True)
    call_command("grants", apply=True)
    table = get_root().table
    rights = "SELECT " + ", ".join(
        f"has_table_privilege(%s, %s, '{item}')" for item in ("SELECT", "INSERT", "DELETE")
    )
    for node in range(len(distributed.urls)):
        assert distributed.fetch_rows(rights, [WEB, table] * 3, node) == [(True, False, False)]
        assert distributed.fetch_rows(rights, [CONSUMER, table] * 3, node) == [(True, True, False)]


def test_system_check_reports_log_statement_setting_of_a_worker(distributed: Citus) -> None:
    worker = distributed.connect(1)
    worker.execute("SET citus.enable_ddl_propagation TO off")
    worker.execute(f"ALTER DATABASE {worker.info.dbname} SET log_statement = 'all'")
    disconnect()
    try:
        texts = [fault.text for fault in _find_faults_of_servers(connection) if fault.number == 14]
    finally:
        worker.execute(f"ALTER DATABASE {worker.info.dbname} RESET log_statement")
    [text] = [item for item in texts if f"{worker.info.host}:{worker.info.port}:" in item]
    assert "log_statement = all" in text
