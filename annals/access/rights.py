"""Which of the rights that `annals grants` gives the web its login does not have: after a
migration that added a table, before grants were applied again.
"""

from __future__ import annotations

from django.db import connection

from annals.access import grants

# A table that does not exist yet is a matter of the migrations.
_MISSING = """
SELECT wanted.right_name || ' on ' || wanted.name
    || CASE WHEN wanted.col = '' THEN '' ELSE '.' || wanted.col END
FROM unnest(%s::text[], %s::text[], %s::text[]) AS wanted (name, right_name, col)
JOIN pg_class c ON c.relname = wanted.name AND c.relnamespace = 'public'::regnamespace
WHERE NOT CASE WHEN wanted.col = '' THEN has_table_privilege(c.oid, wanted.right_name)
    ELSE has_column_privilege(c.oid, wanted.col, wanted.right_name) END
ORDER BY 1
"""


def missing() -> list[str]:
    """What the login of this process lacks of the web's rights, for example "INSERT on
    access_opened.login". One query. Raises the errors of the database."""
    wanted = list(grants.of_web())
    with connection.cursor() as cursor:
        cursor.execute(_MISSING, [list(column) for column in zip(*wanted, strict=True)])
        return [text for (text,) in cursor.fetchall()]
