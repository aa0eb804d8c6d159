"""Which of the rights that `annals grants` gives the web its login does not have: after a
migration that added a table, before grants were applied again.
"""

from __future__ import annotations

from django.db import connection

from annals.access import grants
from history import privileges


def missing() -> list[str]:
    """What the login of this process lacks of the web's rights, for example "INSERT on
    access_journal.login". One query. Raises the errors of the database."""
    statement, values = privileges.missing(grants.of_web())
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return [text for (text,) in cursor.fetchall()]
