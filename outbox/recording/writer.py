"""Records versions with one statement in the transaction of the change.

The statement increases the version number in outbox_document, and stores the message. Writers of
the same document wait for each other.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from django.apps import apps
from django.db import ProgrammingError, connections, router
from psycopg.errors import UndefinedTable

from outbox.conf import ID_LENGTH, NAME_LENGTH, conf
from outbox.database.day_tables import SLOT
from outbox.errors import NotInTransaction, OutboxError, WrongChange
from outbox.recording import author as authors
from outbox.recording import message
from outbox.recording.message import Snapshot

CHANNEL = "outbox"
# Relays share the documents by bucket. A document never changes its bucket.
BUCKETS = 64
# The most versions that one statement stores.
_MOST_ROWS = 1_000

# The clock is read once for `recorded_at` and `waiting_since`. With two readings, a document could
# seem to wait since a moment after its version was recorded.
_RECORD = f"""
WITH change AS (
    SELECT * FROM unnest(%s::text[], %s::int[], %s::int[], %s::bytea[], %s::text[], %s::text[])
        AS c (key, bucket, type, digest, parent, data)
), head AS (
    INSERT INTO outbox_document AS d
        (key, bucket, version, sent, type, digest, recorded_at, waiting_since, attempts, last_error)
    SELECT key, bucket, 1, 0, type, digest, moment.now, moment.now, 0, ''
    FROM change CROSS JOIN (SELECT clock_timestamp() AS now) AS moment
    ORDER BY key COLLATE "C"
    ON CONFLICT (key) DO UPDATE SET
        version = d.version + 1,
        type = CASE WHEN excluded.type = 2 THEN 2 WHEN d.type = 2 THEN 0 ELSE 1 END,
        digest = excluded.digest,
        recorded_at = greatest(d.recorded_at, excluded.recorded_at),
        waiting_since = coalesce(d.waiting_since, greatest(d.recorded_at, excluded.recorded_at))
    WHERE %s OR d.digest <> excluded.digest
    RETURNING key, bucket, version, type, recorded_at
), message AS (
    INSERT INTO outbox_message
        (document, version, type, recorded_at, updated_at, client_id, author, parent, data, slot)
    SELECT key, version, head.type, recorded_at, clock_timestamp(), %s, %s, parent, data,
        {SLOT}
    FROM head JOIN change USING (key)
)
SELECT key, version, pg_notify(%s, bucket::text) FROM head
"""  # noqa: S608 - our own constant


@dataclass(frozen=True, slots=True)
class Change:
    """A document as it is after a change.

    Attributes:
        entity: The kind of the document.
        id: The id of the document within its kind.
        data: The snapshot. Only a deletion may have None.
        parent: The id of the application that the document belongs to, sent as `productInstanceId`.
        deleted: Whether the document was deleted.
    """

    entity: str
    id: str
    data: Snapshot | None
    parent: str | None = None
    deleted: bool = False

    @property
    def key(self) -> str:
        """The document as `entity/id`. With the version it is the idempotency key."""
        return f"{self.entity}/{self.id}"


def record(
    entity: str,
    id: str,
    data: Snapshot | None,
    *,
    parent: str | None = None,
    deleted: bool = False,
    author: str | None = None,
    client_id: str | None = None,
    using: str | None = None,
) -> int | None:
    """Record the new version of a document, and return its number, or None if nothing changed.

    Call this inside transaction.atomic(), after the change.

    Args:
        entity: The name of the document's kind.
        id: The id of the document.
        data: The snapshot. None is allowed only for a deletion.
        parent: The id of the application that the document belongs to.
        deleted: Whether the document was deleted.
        author: Who made the change; by default, the user of the request.
        client_id: The name of the service; by default, OUTBOX["CLIENT_ID"].
        using: The database; by default, the router chooses it.

    Raises:
        OutboxError: Nothing was recorded.
    """
    change = Change(entity, id, data, parent, deleted)
    return record_many([change], author=author, client_id=client_id, using=using)[0]


def record_many(
    changes: Iterable[Change],
    *,
    author: str | None = None,
    client_id: str | None = None,
    using: str | None = None,
) -> list[int | None]:
    """Record versions of several documents, and return their numbers in the same order.

    See `record`. A document may occur several times. If a transaction calls this several times,
    use the same order of documents in all transactions, so that they do not deadlock.
    """
    change_list = list(changes)
    alias = using or _choose_database()
    if not connections[alias].in_atomic_block:
        raise NotInTransaction(
            "record() needs a transaction: call it inside transaction.atomic(), with the change"
        )
    if connections[alias].vendor != "postgresql":
        raise OutboxError(
            f"the database {alias!r} is not PostgreSQL, so versions cannot be recorded in it"
        )
    author_name = authors.get_current_author() if author is None else author
    service = conf().client_id if client_id is None else client_id
    _require_name("client_id", service)
    if author_name is not None:
        _require_name("author", author_name)
    for change in change_list:
        _check_change(change)
    texts = [message.encode_snapshot(change.data, change.key) for change in change_list]
    numbers: list[int | None] = [None] * len(change_list)
    for indexes in _group_for_statements(change_list):
        written = [(change_list[index], texts[index]) for index in indexes]
        stored_numbers = _store_versions(written, author_name, service, alias)
        for index in indexes:
            numbers[index] = stored_numbers.get(change_list[index].key)
    return numbers


def compute_bucket(key: str) -> int:
    """Return the bucket of a document (0 to 63). One relay sends all documents of a bucket."""
    return crc32(key.encode()) % BUCKETS


def _group_for_statements(changes: Sequence[Change]) -> Iterable[list[int]]:
    """Yield the indexes of changes in groups, each for one statement.

    No group has two changes of the same document.
    """
    rounds: list[dict[str, int]] = []
    counts: dict[str, int] = {}
    for index, change in enumerate(changes):
        round_index = counts.get(change.key, 0)
        counts[change.key] = round_index + 1
        if round_index == len(rounds):
            rounds.append({})
        rounds[round_index][change.key] = index
    for by_key in rounds:
        # All transactions lock documents in this order, so that they do not deadlock.
        indexes = [by_key[key] for key in sorted(by_key)]
        yield from (
            indexes[start : start + _MOST_ROWS] for start in range(0, len(indexes), _MOST_ROWS)
        )


def _store_versions(
    changes: Sequence[tuple[Change, str]], author: str | None, client_id: str, alias: str
) -> dict[str, int]:
    """Store versions, and return the new version number of each document that changed.

    Args:
        changes: Pairs of a change and the JSON of its snapshot.
    """
    columns: list[list[Any]] = [
        [change.key for change, _ in changes],
        [compute_bucket(change.key) for change, _ in changes],
        [2 if change.deleted else 0 for change, _ in changes],
        [message.compute_digest(text, change.parent, change.deleted) for change, text in changes],
        [change.parent for change, _ in changes],
        [text for _, text in changes],
    ]
    parameters = [*columns, conf().send_unchanged, client_id, author, CHANNEL]
    with connections[alias].cursor() as cursor:
        try:
            cursor.execute(_RECORD, parameters)
        except ProgrammingError as error:
            if isinstance(error.__cause__, UndefinedTable):
                raise _make_no_tables_error(alias) from error
            raise
        return {key: version for key, version, _ in cursor.fetchall()}


def _make_no_tables_error(alias: str) -> OutboxError:
    return OutboxError(
        f"the database {alias!r} has no tables of the outbox: run `manage.py migrate outbox"
        f" --database {alias}`, and a relay with --database {alias}"
    )


def _check_change(change: Change) -> None:
    if change.entity not in conf().topics:
        raise WrongChange(
            f"settings.OUTBOX: TOPICS has no topic for {change.entity!r}; it has"
            f" {', '.join(sorted(conf().topics))}"
        )
    _require_name(f"{change.entity}: id", change.id, ID_LENGTH)
    if change.parent is not None:
        _require_name(f"{change.key}: parent", change.parent, ID_LENGTH)
    if change.data is None and not change.deleted:
        raise WrongChange(f"{change.key}: only a deleted document may have no snapshot")


def is_id(text: str) -> bool:
    """Return whether a document can have this id."""
    return 0 < len(text) <= ID_LENGTH and "\0" not in text and _is_utf8(text)


def _require_name(subject: str, value: object, length: int = NAME_LENGTH) -> None:
    if not isinstance(value, str) or not 0 < len(value) <= length:
        raise WrongChange(f"{subject} must be a text of 1 to {length} characters, not {value!r}")
    if "\0" in value or not _is_utf8(value):
        raise WrongChange(f"{subject} has a character that PostgreSQL cannot store: {value!r}")


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _choose_database() -> str:
    return router.db_for_write(apps.get_model("outbox", "Document"))
