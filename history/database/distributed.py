"""Whether Django's database has its versions on several nodes."""

from django.db import connection

from history import distribution


def apart() -> bool:
    """As distribution.active, of Django's connection. Raises django.db.Error."""
    connection.ensure_connection()
    with connection.wrap_database_errors:
        return distribution.active(connection.connection)
