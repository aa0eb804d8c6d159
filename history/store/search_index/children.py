"""The rows of search_key by which the children of an application are found on a cluster.

A child names its application in each of its versions. On one server an index finds them; on a
cluster every shard would have to look. So a row of search_key lists each child of an application,
with the first and the newest day of its versions that name it, on the shard of the application.

The rows are only used once `annals search index` has listed the children of the versions that were
stored before, which a mark says.
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
    """A child of an application, in the order of insertion."""

    application: str
    entity: str
    id: str
    first_day: int  # in days since the epoch: of the oldest version that names the application
    day: int  # of the newest one


class NewChildren:
    """Collects the children that versions name, except those that are stored for that day already.

    fingerprints: what was added, for the `known` of a later instance once it is stored.
    """

    def __init__(self, known: Container[int] = frozenset()) -> None:
        self._known = known
        self._days: dict[tuple[str, str, str], tuple[int, int]] = {}
        self.fingerprints: set[int] = set()

    def add_record(self, record: Record) -> None:
        """Add the child that a version is of; nothing for an application."""
        self.add(record.entity, record.id, record.product_instance_id, record.updated_at)

    def add(self, entity: str, id: str, application: str | None, updated_at: int) -> None:
        """Add the child that a version is of.

        Args:
            application: None if the version is not of a child.
            updated_at: Microseconds since the epoch.
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
        """Return each child of each application once, in the order of insertion."""
        return [ChildRow(*key, *days) for key, days in sorted(self._days.items())]


_WIDEN: Final = """
    ON CONFLICT (value, name, entity, id) DO UPDATE
    SET day = greatest(search_key.day, excluded.day),
        first_day = least(search_key.first_day, excluded.first_day)
    WHERE search_key.day < excluded.day OR search_key.first_day > excluded.first_day
"""


def upsert_children(connection: psycopg.Connection[Any], children: list[ChildRow]) -> None:
    """Store children of a cluster inside the caller's transaction. They are sorted."""
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
    """Note that search_key lists the children of all stored versions."""
    connection.execute(
        "INSERT INTO django_migrations (app, name, applied) SELECT 'history', %(mark)s::text, now()"
        " WHERE NOT EXISTS (SELECT FROM django_migrations WHERE name = %(mark)s::text)",
        {"mark": MARK},
    )
