"""The rights that the consumer needs in the database; `annals grants` gives them to its login."""

from collections.abc import Iterator, Mapping
from typing import Final

from django.db.models import Model

from history.kinds.entities import ENTITIES
from history.store.database import privileges
from ingest.models import Ledger, Quarantined

READS: Final = (
    "sealed_day",
    "pack_dictionary",
    "ingest_retired_topic",
    "django_migrations",
    "gap_run",
)
INSERTS: Final = ("ingest_gap", "ingest_unstored", "late_row")
# `annals gaps heal` notes for which gaps it has asked the services.
HEALS: Final[Mapping[str, str]] = {"version_gap": "SELECT, UPDATE (asked_at)"}
# Tables of which the consumer changes some columns.
KEYS: Final[Mapping[str, str]] = {
    # The last day of a version with this business key, and the first day of a listed child.
    "search_key": "SELECT, INSERT, UPDATE (day, first_day)",
    # The topics that do not exist.
    "ingest_asked_topic": "SELECT, INSERT, UPDATE (absent, asked_at)",
    # The late list. PostgreSQL demands the right to update a column of a row to lock the row.
    "feed_horizon": "SELECT, UPDATE (id)",
    "late_list": "SELECT, UPDATE (last_position)",
    "late_batch": "INSERT",
    # Figures for the pages of operators, and the requests that people make on these pages.
    "ingest_pace": "SELECT, INSERT, UPDATE (at, came, read, stored)",
    "ingest_job_run": "SELECT, INSERT, UPDATE (started_at, outcome)",
    "ingest_quarantine_request": "SELECT, UPDATE (done_at, outcome)",
}
# Tables of which the consumer changes all columns except the named ones.
UPDATES: Final[tuple[tuple[type[Model], frozenset[str]], ...]] = (
    (
        Ledger,
        frozenset(
            {"topic", "topic_id", "partition", "first_offset"}
            | {"lost_acknowledged", "quarantine_removed", "noted_from"}
        ),
    ),
    (
        Quarantined,
        frozenset(
            {"id", "topic", "topic_id", "partition", "offset"} | {"timestamp", "day", "first_seen"}
        ),
    ),
)


def list_tables() -> set[str]:
    """Return the tables on which the consumer has a right, except the tables of versions."""
    changed = (model._meta.db_table for model, _ in UPDATES)
    return {*READS, *INSERTS, *HEALS, *KEYS, *changed}


def list_consumer_rights() -> Iterator[privileges.Right]:
    """Yield each right of the consumer."""
    for table in READS:
        yield table, "SELECT", ""
    # The consumer reads the versions to recognise repeated messages.
    for table in (*(entity.table for entity in ENTITIES), *INSERTS):
        yield from privileges.iterate_rights(table, "SELECT, INSERT")
    for model, unchanged in UPDATES:
        table = model._meta.db_table
        yield from privileges.iterate_rights(table, "SELECT, INSERT")
        columns = (str(field.column) for field in model._meta.local_concrete_fields if field.column)
        yield from ((table, "UPDATE", name) for name in columns if name not in unchanged)
    for table, privileges_ in {**HEALS, **KEYS}.items():
        yield from privileges.iterate_rights(table, privileges_)
