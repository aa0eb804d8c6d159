"""Records versions: one statement in the transaction of the change moves the document's number in
outbox_document and keeps the message. Writers of one document wait for each other."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from django.apps import apps
from django.db import ProgrammingError, connections, router
from psycopg.errors import UndefinedTable

from outbox import author as authors
from outbox import message
from outbox.conf import ID_LENGTH, NAME_LENGTH, conf
from outbox.days import SLOT
from outbox.errors import NotInTransaction, OutboxError, WrongChange
from outbox.message import Snapshot

CHANNEL = "outbox"
# Relays share the documents by these numbers. A document keeps its number.
BUCKETS = 64
# Rows of one statement.
_MOST = 1_000

# The moment is taken once, so that no version is recorded before its document waits.
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
    """A document as it is after a change. data: its snapshot; may be None if deleted. parent: the
    id of the document that it belongs to, sent as productInstanceId."""

    entity: str
    id: str
    data: Snapshot | None
    parent: str | None = None
    deleted: bool = False

    @property
    def key(self) -> str:
        """The document: entity and id. With the version it is the idempotency key."""
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
    """Record the new version of a document, in transaction.atomic() after the change; its number,
    or None if nothing changed. author: by default the user of the request; client_id:
    OUTBOX["CLIENT_ID"]; using: the database. Raises OutboxError; then nothing is recorded."""
    change = Change(entity, id, data, parent, deleted)
    return record_many([change], author=author, client_id=client_id, using=using)[0]


def record_many(
    changes: Iterable[Change],
    *,
    author: str | None = None,
    client_id: str | None = None,
    using: str | None = None,
) -> list[int | None]:
    """Record versions of several documents, as record() does; their numbers, in order. A document
    may be in it several times. Several calls in a transaction should use one order."""
    given = list(changes)
    alias = using or _database()
    if not connections[alias].in_atomic_block:
        raise NotInTransaction(
            "record() needs a transaction: call it inside transaction.atomic(), with the change"
        )
    if connections[alias].vendor != "postgresql":
        raise OutboxError(
            f"the database {alias!r} is not PostgreSQL: nothing can be recorded in it"
        )
    who = authors.current() if author is None else author
    service = conf().client_id if client_id is None else client_id
    _require_name("client_id", service)
    if who is not None:
        _require_name("author", who)
    for change in given:
        _check(change)
    texts = [message.text(change.data, change.key) for change in given]
    numbers: list[int | None] = [None] * len(given)
    for part in _statements(given):
        written = [(given[place], texts[place]) for place in part]
        found = _store(written, who, service, alias)
        for place in part:
            numbers[place] = found.get(given[place].key)
    return numbers


def bucket(key: str) -> int:
    """The bucket of a document that is new."""
    return crc32(key.encode()) % BUCKETS


def _statements(changes: Sequence[Change]) -> Iterable[list[int]]:
    """The places of the changes in groups that one statement can take: no document twice."""
    rounds: list[dict[str, int]] = []
    seen: dict[str, int] = {}
    for place, change in enumerate(changes):
        turn = seen.get(change.key, 0)
        seen[change.key] = turn + 1
        if turn == len(rounds):
            rounds.append({})
        rounds[turn][change.key] = place
    for each in rounds:
        # All writers in one order.
        places = [each[key] for key in sorted(each)]
        yield from (places[at : at + _MOST] for at in range(0, len(places), _MOST))


def _store(
    written: Sequence[tuple[Change, str]], author: str | None, client_id: str, alias: str
) -> dict[str, int]:
    """The new version by document, if it changed. written: with the snapshots' texts."""
    columns: list[list[Any]] = [
        [change.key for change, _ in written],
        [bucket(change.key) for change, _ in written],
        [2 if change.deleted else 0 for change, _ in written],
        [message.digest(text, change.parent, change.deleted) for change, text in written],
        [change.parent for change, _ in written],
        [text for _, text in written],
    ]
    given = [*columns, conf().send_unchanged, client_id, author, CHANNEL]
    with connections[alias].cursor() as cursor:
        try:
            cursor.execute(_RECORD, given)
        except ProgrammingError as error:
            if isinstance(error.__cause__, UndefinedTable):
                raise _no_tables(alias) from error
            raise
        return {key: version for key, version, _ in cursor.fetchall()}


def _no_tables(alias: str) -> OutboxError:
    return OutboxError(
        f"the database {alias!r} has no tables of the outbox: run `manage.py migrate outbox"
        f" --database {alias}`, and a relay with --database {alias}"
    )


def _check(change: Change) -> None:
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


def _require_name(what: str, name: object, length: int = NAME_LENGTH) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= length:
        raise WrongChange(f"{what} must be a text of 1 to {length} characters, not {name!r}")
    if "\0" in name or not _is_utf8(name):
        raise WrongChange(f"{what} has a character that PostgreSQL cannot store: {name!r}")


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _database() -> str:
    return router.db_for_write(apps.get_model("outbox", "Document"))
