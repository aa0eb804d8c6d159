"""What the outbox has recorded."""

from django.db import connection

from outbox.message import Version

COLUMNS = "document, version, type, recorded_at, updated_at, client_id, author, parent, data"


def versions() -> list[Version]:
    """In the order of their recording."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {COLUMNS} FROM outbox_message ORDER BY updated_at, version")
        return [Version(*row) for row in cursor.fetchall()]
