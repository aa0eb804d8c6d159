"""Decides which relays are alive, and which buckets (shares of the documents) each relay sends.

A relay is alive as long as its beat, a number in its row, grows.
"""

import json
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from time import monotonic

import psycopg

from outbox.database.sessions import Connection
from outbox.recording.writer import BUCKETS

logger = logging.getLogger(__name__)

CHANNEL = "outbox_relays"

_ADD_COUNTS = """
INSERT INTO outbox_tally AS t (what, times)
SELECT * FROM unnest(%s::text[], %s::bigint[]) AS n (what, times) ORDER BY what
ON CONFLICT (what) DO UPDATE SET times = t.times + excluded.times
"""
_CREATE_BUCKETS = """
INSERT INTO outbox_bucket (number) SELECT generate_series(0, %s - 1) ON CONFLICT DO NOTHING
"""
_CLAIM_BUCKETS = """
UPDATE outbox_bucket SET owner = %(relay)s WHERE number IN (
    SELECT number FROM outbox_bucket WHERE owner IS NULL ORDER BY number LIMIT %(most)s
    FOR UPDATE SKIP LOCKED
)
"""
_RELEASE_BUCKETS = (
    "UPDATE outbox_bucket SET owner = NULL WHERE number = ANY(%s::smallint[]) AND owner = %s"
)


class LeaseLostError(Exception):
    """Raised if other relays took over because this relay wrote no heartbeat for a whole lease."""


@dataclass(slots=True)
class RelayMembership:
    """The membership of this relay among all relays of a database.

    Attributes:
        name: The name of this relay.
        lease: After how many seconds without a beat other relays take over its buckets.
        id: The primary key of this relay's row; None before it joins.
        buckets: The buckets that only this relay sends.
        relays_changed: Whether a relay joined or left. Buckets must then be balanced at once.
    """

    name: str
    lease: float
    id: int | None = None
    buckets: frozenset[int] = frozenset()
    _beat_at: float = 0.0
    relays_changed: bool = False
    _balanced_at: float = 0.0
    # By relay, its last beat, and the time at which this relay first saw that beat.
    _seen: dict[int, tuple[int, float]] = field(default_factory=dict)

    @property
    def is_beat_due(self) -> bool:
        """Whether the next beat is due."""
        return monotonic() - self._beat_at > self.lease / 5

    @property
    def is_balancing_due(self) -> bool:
        """Whether it is time to share the buckets (groups of documents) out again among relays."""
        return self.relays_changed or monotonic() - self._balanced_at > self.lease / 5

    @property
    def has_safe_lease(self) -> bool:
        """Whether this relay surely keeps its buckets for at least half a lease (`lease` / 2).

        Other relays take the buckets only when the last beat of this relay is a whole lease old.
        """
        return monotonic() - self._beat_at < self.lease / 2

    def join_relays(self, connection: Connection) -> int:
        """Register this relay, or confirm its membership on a new connection. Return its id.

        Raises:
            LeaseLostError: Other relays have taken over.
        """
        if self.id is None:
            # The rows may be missing, if a test of the service has emptied all tables.
            connection.execute(_CREATE_BUCKETS, [BUCKETS])
            self._beat_at = monotonic()
            row = connection.execute(
                "INSERT INTO outbox_relay (name) VALUES (%s) RETURNING id", [self.name]
            ).fetchone()
            self.id = row[0] if row else None
            self._notify_relays(connection)
        else:
            self.write_beat(connection, ())
        if self.id is None:
            raise LeaseLostError
        return self.id

    def leave_relays(self, connection: Connection) -> None:
        """End the membership of this relay, so that other relays take over its buckets at once."""
        connection.execute("DELETE FROM outbox_relay WHERE id = %s", [self.id])
        self._notify_relays(connection)
        self.reset_identity()

    def reset_identity(self) -> None:
        """Forget the id after a lost lease, so that `join_relays` registers a new relay."""
        self.id, self.buckets = None, frozenset()

    def write_beat(self, connection: Connection, in_hand: Collection[str], error: str = "") -> None:
        """Write that this relay is alive, which documents it is sending, and its error.

        Args:
            in_hand: The documents whose versions are being sent.
            error: Why nothing can be sent now, or empty.

        Raises:
            LeaseLostError: Other relays have taken over.
        """
        began = monotonic()
        updated = connection.execute(
            "UPDATE outbox_relay SET beat = beat + 1, in_hand = %s, last_error = %s WHERE id = %s",
            [json.dumps(sorted(in_hand)), error, self.id],
        )
        if not updated.rowcount:
            raise LeaseLostError
        self._beat_at = began

    def balance_buckets(self, connection: Connection, kept_buckets: Collection[int]) -> None:
        """Remove dead relays, release surplus buckets, and claim buckets without a relay.

        Args:
            kept_buckets: The buckets that this relay must not release now.

        Raises:
            LeaseLostError: Other relays have taken over.
        """
        self._balanced_at, self.relays_changed = monotonic(), False
        relays = self._remove_dead_relays(connection)
        if self.id not in relays:
            raise LeaseLostError
        rows = connection.execute("SELECT number, owner FROM outbox_bucket ORDER BY number")
        owners: dict[int, int | None] = dict(rows.fetchall())
        self.buckets = frozenset(number for number, owner in owners.items() if owner == self.id)
        share = len(owners) // len(relays) + (relays.index(self.id) < len(owners) % len(relays))
        spare = sorted(self.buckets - set(kept_buckets))[: max(0, len(self.buckets) - share)]
        if spare:
            # From here on, documents of these buckets are not sent, even if the statement fails.
            self.buckets -= set(spare)
            connection.execute(_RELEASE_BUCKETS, [spare, self.id])
            self._notify_relays(connection)
        elif len(self.buckets) < share and None in owners.values():
            self._claim_buckets(connection, share - len(self.buckets))

    def add_counts(self, connection: Connection, counts: Mapping[str, int]) -> None:
        """Add numbers to the counts that all relays share."""
        if counts:
            connection.execute(_ADD_COUNTS, [list(counts), list(counts.values())])

    def _claim_buckets(self, connection: Connection, count: int) -> None:
        try:
            connection.execute(_CLAIM_BUCKETS, {"relay": self.id, "most": count})
        except psycopg.errors.ForeignKeyViolation:
            raise LeaseLostError from None
        rows = connection.execute("SELECT number FROM outbox_bucket WHERE owner = %s", [self.id])
        self.buckets = frozenset(number for (number,) in rows)
        logger.info("this relay has %s of %s buckets", len(self.buckets), BUCKETS)

    def _remove_dead_relays(self, connection: Connection) -> list[int]:
        """Remove relays without a heartbeat for `lease` seconds. Return the ids of the rest."""
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
            deleted = connection.execute(
                "DELETE FROM outbox_relay WHERE id = %s AND beat = %s", [relay, beats[relay]]
            )
            if deleted.rowcount:
                logger.warning(
                    "relay %s wrote no heartbeat for %s s; other relays take over its buckets",
                    relay,
                    self.lease,
                )
                del beats[relay]
        return list(beats)

    def _notify_relays(self, connection: Connection) -> None:
        connection.execute("SELECT pg_notify(%s, '')", [CHANNEL])
