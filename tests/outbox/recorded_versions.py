"""The versions that the outbox has recorded."""

from django.db import connection

from outbox.recording.message import RecordedVersion

COLUMNS = "document, version, type, recorded_at, updated_at, client_id, author, parent, data"


def load_versions() -> list[RecordedVersion]:
    """Return all recorded versions in the order of recording."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {COLUMNS} FROM outbox_message ORDER BY updated_at, version")
        return [RecordedVersion(*row) for row in cursor.fetchall()]
