"""Who calls the functions with which the nodes of a Citus cluster change what they know of each
other: the owner of the tables alone.

Citus lets everybody call them. A session says itself, in its application name, that it is a node,
and some of these functions ask for nothing more: with one of them any login could take a shard from
its node, so that nobody reads or writes it.
"""

from __future__ import annotations

from typing import Final, LiteralString

from django.db import connection
from psycopg import sql

from history.database.apart import apart

# Of the extension, on the node that runs it. Views for administrators need those that are left out.
_FUNCTIONS: Final[LiteralString] = """
SELECT p.oid::regprocedure FROM pg_proc p
JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid
WHERE e.extname = 'citus' AND p.proname !~ 'blocked_processes$'
    AND (p.pronamespace = to_regnamespace('citus_internal') OR p.proname ~ '^citus_internal_')
    AND EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
        WHERE a.grantee = 0 AND a.privilege_type = 'EXECUTE')
"""
_COUNT: Final[LiteralString] = "SELECT count(*) FROM ({functions}) AS open"
_CLOSE: Final[LiteralString] = """
DO $annals$ DECLARE each regprocedure; BEGIN
    FOR each IN {functions} LOOP
        EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO %I', each, {owner});
        EXECUTE format('REVOKE EXECUTE ON ROUTINE %s FROM PUBLIC', each);
    END LOOP;
END $annals$
"""
_OWNER: Final[LiteralString] = """
SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = to_regclass('public.auth_user')
"""
# A node that does not answer is asked again by the next run.
_OPEN: Final[LiteralString] = """
SELECT count(*) FROM run_command_on_all_nodes(%s, give_warning_for_connection_errors => false)
WHERE success AND result <> '0'
"""


def open_to_all() -> bool:
    """Whether everybody may call them on a node. False in a plain installation. Raises
    django.db.Error."""
    if not apart():
        return False
    question = sql.SQL(_COUNT).format(functions=sql.SQL(_FUNCTIONS))
    with connection.cursor() as cursor:
        cursor.execute(_OPEN, [question.as_string(cursor.connection)])
        (nodes,) = cursor.fetchone() or (0,)
    return bool(nodes)


def closing() -> list[sql.Composed]:
    """SQL for a superuser on the coordinator that closes them on all nodes; nothing where they are
    closed, and in a plain installation. It does not fail where the login may not: ask again."""
    if not open_to_all():
        return []
    with connection.cursor() as cursor:
        cursor.execute(_OWNER)
        (owner,) = cursor.fetchone() or ("",)
        close = sql.SQL(_CLOSE).format(functions=sql.SQL(_FUNCTIONS), owner=sql.Literal(owner))
        command = " ".join(close.as_string(cursor.connection).split())
    return [
        sql.SQL("SELECT * FROM run_command_on_all_nodes({command})").format(
            command=sql.Literal(command)
        )
    ]
