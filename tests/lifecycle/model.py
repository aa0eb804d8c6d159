"""The model of the lifecycle test, which imports nothing of the code under test.

The model has the messages that the ledger has counted, the versions that must be stored, and the
versions that can be expired. It also knows which days must be held.
"""

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

from tests.lifecycle.observed import Observed, TableDay, TopicOffset
from tests.lifecycle.sent import BY_TABLE, TOPICS, Draft, Row, Sent, VersionDay, make_sent

UNSETTLED = ("new", "retrying", "failed")


@dataclass
class PendingMessage:
    """A decoded message that the ledger has not counted yet.

    The window moves when the clock or the retention changes. Three fields have the latest start,
    the earliest end and the latest end of the window since the message was decoded.
    """

    oldest_until: date  # the latest start of the window
    newest_from: date  # the earliest end of the window
    newest_until: date  # the latest end of the window
    day_missing: bool  # whether the day of the message might have had no partition for a time


@dataclass
class Model:
    """The log of the broker, and what must be true about each of its messages.

    Attributes:
        acknowledged: For each topic, how many messages the ledger has counted as read.
        pending: The decoded messages that the ledger has not counted yet, by topic and offset.
        acknowledged_rows: The rows that must be stored, because PostgreSQL committed them.
        by_hand: The rows of `acknowledged_rows` that were written with SQL, and the texts of their
            snapshots.
        fates: By topic and offset of a message: `stored`, `expired`, `quarantined`, or the outcome
            of a retry.
        came_back: Archived days for which something other than `partitions restore` created a
            partition again.
    """

    now: datetime
    retention: int
    ahead: int
    hold: int
    log: dict[str, list[Sent]] = field(default_factory=lambda: {topic: [] for topic in TOPICS})
    acknowledged: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOPICS, 0))
    pending: dict[TopicOffset, PendingMessage] = field(default_factory=dict)
    acknowledged_rows: set[Row] = field(default_factory=set)
    by_hand: dict[Row, str] = field(default_factory=dict)
    fates: dict[TopicOffset, str] = field(default_factory=dict)
    came_back: set[TableDay] = field(default_factory=set)

    @property
    def today(self) -> date:
        return self.now.astimezone(UTC).date()

    @property
    def oldest(self) -> date:
        """The first day that is kept."""
        return self.today - timedelta(days=self.retention)

    @property
    def newest(self) -> date:
        """The last day whose versions are accepted."""
        return self.today + timedelta(days=self.ahead)

    def get_message(self, where: TopicOffset) -> Sent:
        return self.log[where[0]][where[1]]

    def send(self, draft: Draft, seen: Observed) -> None:
        one_day = timedelta(days=1)
        day = {
            VersionDay.TODAY: self.today,
            VersionDay.YESTERDAY: self.today - one_day,
            VersionDay.OLDEST: self.oldest,
            VersionDay.BEFORE: self.oldest - one_day,
            VersionDay.ARCHIVED: find_newest_archived(seen) or self.oldest - one_day,
            VersionDay.AHEAD: self.newest,
            VersionDay.BEYOND: self.newest + one_day,
        }[draft.day]
        log = self.log[draft.topic]
        log.append(make_sent(draft, day, len(log), self.now))

    def make_row_by_hand(self, day: date) -> tuple[Row, str]:
        """Return a new version that no message contains, and the text of its snapshot."""
        draft = Draft(id=100 + len(self.by_hand), version=1)
        return _split_row_and_text(make_sent(draft, day, 0, self.now))

    def repeat_row(self, row: Row) -> tuple[Row, str]:
        """Return `row` and the text of its snapshot, so that the stored row can be sent again."""
        if row in self.by_hand:
            return row, self.by_hand[row]
        return next(
            _split_row_and_text(message)
            for log in self.log.values()
            for message in log
            if message.row == row
        )

    def note_decoded(self, message: Sent, seen: Observed) -> None:
        """Note that a consumer has just decoded this message."""
        missing = not seen.has_partition((message.table, message.day))
        self.pending[message.place] = PendingMessage(self.oldest, self.newest, self.newest, missing)

    def note_moved_window(self) -> None:
        """Note that the clock or the retention has changed."""
        for pending in self.pending.values():
            pending.oldest_until = max(pending.oldest_until, self.oldest)
            pending.newest_from = min(pending.newest_from, self.newest)
            pending.newest_until = max(pending.newest_until, self.newest)

    def find_disputed_days(self) -> set[TableDay]:
        """Return the days with a version that was committed twice, with different contents.

        The first content is in the archive. The second content was stored when the day had a new
        partition without the archived rows. `partitions maintain` does not touch such a day.
        """
        keys = Counter(row.key for row in self.acknowledged_rows)
        return {(row.table, row.day) for row in self.acknowledged_rows if keys[row.key] > 1}

    def list_unsettled(self, seen: Observed, place: TableDay) -> list[Sent]:
        """Return the unsettled messages in quarantine that have a version of this table and day."""
        return [
            message
            for where, row in seen.quarantine.items()
            if row.status in UNSETTLED
            for message in (self.get_message(where),)
            if (message.table, message.day) == place
        ]

    def list_unread_topics(self, seen: Observed, place: TableDay) -> list[str]:
        """Return the topics of the table that can have unread versions of this day.

        A topic counts as unread if the next offset in the ledger is lower than the end offset. If
        the newest message that was read from the live topic was sent after this day, the live topic
        does not have unread versions of this day. This is not true for the migration topic, which
        has old versions in new messages.
        """
        live, twin = BY_TABLE[place[0]].topics
        behind = [
            topic
            for topic in (live, twin)
            if (row := seen.ledger.get(topic)) and (row.high_watermark or 0) > row.next_offset
        ]
        read = self.log[live][: seen.ledger[live].next_offset] if live in behind else ()
        newest = max((item.sent for item in read), default=None)
        if newest is not None and place[1] < newest.date():
            behind.remove(live)
        return behind

    def is_held(self, seen: Observed, place: TableDay) -> bool:
        """Return whether `maintain` must keep this day, which is older than retention."""
        if place[1] < self.oldest - timedelta(days=self.hold):
            return False
        return bool(self.list_unsettled(seen, place) or self.list_unread_topics(seen, place))


def _split_row_and_text(message: Sent) -> tuple[Row, str]:
    assert message.row is not None
    text = message.value.decode()
    return message.row, text[text.index('"data": ') + len('"data": ') : -1]


def find_newest_archived(seen: Observed) -> date | None:
    return max((day for _, day in seen.archived), default=None)
