"""Who creates things in the schema of the tables: their owner alone."""

from __future__ import annotations

from django.db import connection
from psycopg import sql

# The owner of the tables, where everybody may create something: so it is in a cluster that began
# as PostgreSQL 14 or earlier.
_OPEN = """
SELECT pg_get_userbyid(t.relowner) FROM pg_class t, pg_namespace n, aclexplode(n.nspacl) a
WHERE t.oid = to_regclass('public.auth_user') AND n.nspname = 'public'
    AND a.grantee = 0 AND a.privilege_type = 'CREATE'
"""


def closing() -> list[sql.Composed]:
    """SQL that takes the right to create things in the schema from everybody but the owner of the
    tables; nothing where they do not have it. A function that the web's login created there could
    be called in the place of PostgreSQL's own, with the rights of who calls it."""
    with connection.cursor() as cursor:
        cursor.execute(_OPEN)
        row = cursor.fetchone()
    if row is None:
        return []
    return [
        sql.SQL("GRANT CREATE ON SCHEMA public TO {}").format(sql.Identifier(row[0])),
        sql.SQL("REVOKE CREATE ON SCHEMA public FROM PUBLIC").format(),
    ]
