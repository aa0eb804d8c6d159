"""Rights of the logins on all nodes."""

from __future__ import annotations

from django.core.management import call_command

from annals.access.grants import CONSUMER, WEB
from history.entities import root
from tests.citus.cluster import Citus


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
