"""The rows of search_key by which the children of an application are found on a cluster.

A child names its application in each of its versions. On one server an index finds the children. On
a cluster every shard would have to be searched. So search_key has a row for each child of an
application, on the application's shard. The row has the first and the newest day on which a version
of the child names the application.

The consumer adds the children of the versions that it stores. `annals search index` adds the
children of older versions, and then writes MARK into django_migrations. Without this mark the rows
are not used.
"""

from collections.abc import Container
from typing import Any, Final, NamedTuple

import psycopg

from history.documents.record import Record
from history.store.days.window import MICROSECONDS_PER_DAY
from history.store.search_index.upsert import format_day, insert_distributed

KEY_NAME: Final = "(application)"
"""The name in search_key. No declared business key can have it."""
MARK: Final = "search_keys_of_children"
"""The row of django_migrations that says that search_key lists all children."""


class ChildRow(NamedTuple):
    """A child of an application.

    Rows are sorted by these fields, the first field first, before they are inserted.
    """

    application: str
    entity: str
    id: str
    # The days of the oldest and of the newest version that names the application.
    first_day: int  # in days since the epoch
    day: int  # in days since the epoch


class NewChildren:
    """The children to store in search_key, each with the days of the versions that were added.

    A pair of child and day is left out if search_key is known to have it.

    Args:
        known_fingerprints: The fingerprints of children that search_key has. A fingerprint stands
            for the child, the application and the day.

    Attributes:
        fingerprints: The fingerprints of the children that were added. Once these are stored, the
            caller can pass them to a later instance.
    """

    def __init__(self, known_fingerprints: Container[int] = frozenset()) -> None:
        self._known = known_fingerprints
        self._days: dict[tuple[str, str, str], tuple[int, int]] = {}
        self.fingerprints: set[int] = set()

    def add_record(self, record: Record) -> None:
        """Add the document of a record if it is a child; otherwise do nothing."""
        self.add(record.entity, record.id, record.product_instance_id, record.updated_at)

    def add(self, entity: str, id: str, application: str | None, updated_at: int) -> None:
        """Add a document if it is a child.

        Args:
            application: The application that the version names. None: the document is not a child.
            updated_at: The moment of the version, in microseconds since the epoch.
        """
        if application is None:
            return
        day = updated_at // MICROSECONDS_PER_DAY
        key = (application, entity, id)
        fingerprint = hash((key, day))
        if fingerprint in self.fingerprints or fingerprint in self._known:
            return
        self.fingerprints.add(fingerprint)
        first_day, last_day = self._days.get(key, (day, day))
        self._days[key] = min(day, first_day), max(day, last_day)

    def list_rows(self) -> list[ChildRow]:
        """Return each child of each application once, sorted by the fields of ChildRow."""
        return [ChildRow(*key, *days) for key, days in sorted(self._days.items())]


_WIDEN: Final = """
    ON CONFLICT (value, name, entity, id) DO UPDATE
    SET day = greatest(search_key.day, excluded.day),
        first_day = least(search_key.first_day, excluded.first_day)
    WHERE search_key.day < excluded.day OR search_key.first_day > excluded.first_day
"""


def upsert_children(connection: psycopg.Connection[Any], children: list[ChildRow]) -> None:
    """Insert or update the rows of children in search_key on a cluster.

    Runs in the caller's transaction.

    Args:
        children: The children in ascending order, as NewChildren.list_rows returns them.
    """
    insert_distributed(
        connection,
        "value, name, entity, id, day, first_day",
        [
            (
                child.application,
                KEY_NAME,
                child.entity,
                child.id,
                format_day(child.day),
                format_day(child.first_day),
            )
            for child in children
        ],
        _WIDEN,
    )


def mark_complete(connection: psycopg.Connection[Any]) -> None:
    """Record in django_migrations that search_key lists every child with a stored version."""
    connection.execute(
        "INSERT INTO django_migrations (app, name, applied) SELECT 'history', %(mark)s::text, now()"
        " WHERE NOT EXISTS (SELECT FROM django_migrations WHERE name = %(mark)s::text)",
        {"mark": MARK},
    )
