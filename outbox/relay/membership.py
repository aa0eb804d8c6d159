"""Which relays are alive, and which buckets each has. A relay is alive as long as its beat
grows."""

import json
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from time import monotonic

import psycopg

from outbox.database import Connection
from outbox.writer import BUCKETS

logger = logging.getLogger(__name__)

CHANNEL = "outbox_relays"

_TALLY = """
INSERT INTO outbox_tally AS t (what, times)
SELECT * FROM unnest(%s::text[], %s::bigint[]) AS n (what, times) ORDER BY what
ON CONFLICT (what) DO UPDATE SET times = t.times + excluded.times
"""
_BUCKETS = """
INSERT INTO outbox_bucket (number) SELECT generate_series(0, %s - 1) ON CONFLICT DO NOTHING
"""
_CLAIM = """
UPDATE outbox_bucket SET owner = %(relay)s WHERE number IN (
    SELECT number FROM outbox_bucket WHERE owner IS NULL ORDER BY number LIMIT %(most)s
    FOR UPDATE SKIP LOCKED
)
"""
_GIVE_UP = "UPDATE outbox_bucket SET owner = NULL WHERE number = ANY(%s::smallint[]) AND owner = %s"


class Fenced(Exception):
    """Others have taken over: this relay was silent for longer than its lease."""


@dataclass(slots=True)
class Membership:
    """This relay. buckets: those that it alone sends. hurried: another one came or left."""

    name: str
    lease: float
    id: int | None = None
    buckets: frozenset[int] = frozenset()
    _beat_at: float = 0.0
    hurried: bool = False
    _balanced_at: float = 0.0
    # By relay: the last beat that was different, and when it was seen.
    _seen: dict[int, tuple[int, float]] = field(default_factory=dict)

    @property
    def due(self) -> bool:
        """Whether it is time for a beat."""
        return monotonic() - self._beat_at > self.lease / 5

    @property
    def unbalanced(self) -> bool:
        """Whether it is time to look at the others."""
        return self.hurried or monotonic() - self._balanced_at > self.lease / 5

    @property
    def certain(self) -> bool:
        """Whether nobody can have taken over, and nobody will for half of the lease."""
        return monotonic() - self._beat_at < self.lease / 2

    def join(self, connection: Connection) -> int:
        """Become a member, or stay one on a new connection. Returns the id. Raises Fenced."""
        if self.id is None:
            # A test of the service may have emptied all tables.
            connection.execute(_BUCKETS, [BUCKETS])
            self._beat_at = monotonic()
            row = connection.execute(
                "INSERT INTO outbox_relay (name) VALUES (%s) RETURNING id", [self.name]
            ).fetchone()
            self.id = row[0] if row else None
            self._tell(connection)
        else:
            self.beat(connection, ())
        if self.id is None:
            raise Fenced
        return self.id

    def leave(self, connection: Connection) -> None:
        """Give all buckets to the others at once."""
        connection.execute("DELETE FROM outbox_relay WHERE id = %s", [self.id])
        self._tell(connection)
        self.forget()

    def forget(self) -> None:
        """After being fenced: the next join() is as another relay."""
        self.id, self.buckets = None, frozenset()

    def beat(self, connection: Connection, in_hand: Collection[str], error: str = "") -> None:
        """Show that this relay is alive, what it is sending, and why it cannot. Raises Fenced."""
        before = monotonic()
        done = connection.execute(
            "UPDATE outbox_relay SET beat = beat + 1, in_hand = %s, last_error = %s WHERE id = %s",
            [json.dumps(sorted(in_hand)), error, self.id],
        )
        if not done.rowcount:
            raise Fenced
        self._beat_at = before

    def balance(self, connection: Connection, busy: Collection[int]) -> None:
        """Remove relays that are dead, give up buckets of which others have too few, claim free
        ones. busy: buckets that are kept for now. Raises Fenced."""
        self._balanced_at, self.hurried = monotonic(), False
        alive = self._alive(connection)
        if self.id not in alive:
            raise Fenced
        rows = connection.execute("SELECT number, owner FROM outbox_bucket ORDER BY number")
        owners: dict[int, int | None] = dict(rows.fetchall())
        self.buckets = frozenset(number for number, owner in owners.items() if owner == self.id)
        share = len(owners) // len(alive) + (alive.index(self.id) < len(owners) % len(alive))
        spare = sorted(self.buckets - set(busy))[: max(0, len(self.buckets) - share)]
        if spare:
            # Not sent from here on, whatever becomes of the statement.
            self.buckets -= set(spare)
            connection.execute(_GIVE_UP, [spare, self.id])
            self._tell(connection)
        elif len(self.buckets) < share and None in owners.values():
            self._claim(connection, share - len(self.buckets))

    def add(self, connection: Connection, counts: Mapping[str, int]) -> None:
        """Add to the counts of all relays."""
        if counts:
            connection.execute(_TALLY, [list(counts), list(counts.values())])

    def _claim(self, connection: Connection, most: int) -> None:
        try:
            connection.execute(_CLAIM, {"relay": self.id, "most": most})
        except psycopg.errors.ForeignKeyViolation:
            raise Fenced from None
        rows = connection.execute("SELECT number FROM outbox_bucket WHERE owner = %s", [self.id])
        self.buckets = frozenset(number for (number,) in rows)
        logger.info("has %s of the buckets", len(self.buckets))

    def _alive(self, connection: Connection) -> list[int]:
        """The relays, after removing those that were silent for a lease."""
        beats: dict[int, int] = dict(
            connection.execute("SELECT id, beat FROM outbox_relay ORDER BY id").fetchall()
        )
        now = monotonic()
        for relay, beat in beats.items():
            if self._seen.get(relay, (None, now))[0] != beat:
                self._seen[relay] = (beat, now)
        self._seen = {relay: seen for relay, seen in self._seen.items() if relay in beats}
        silent = [
            relay
            for relay, (_, since) in self._seen.items()
            if relay != self.id and now - since > self.lease
        ]
        for relay in silent:
            gone = connection.execute(
                "DELETE FROM outbox_relay WHERE id = %s AND beat = %s", [relay, beats[relay]]
            )
            if gone.rowcount:
                logger.warning("relay %s was silent for %s s: removed", relay, self.lease)
                del beats[relay]
        return list(beats)

    def _tell(self, connection: Connection) -> None:
        connection.execute("SELECT pg_notify(%s, '')", [CHANNEL])
