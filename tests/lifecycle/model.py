"""What must be true, written apart from the code under test: which versions were acknowledged,
which can be expired, and what holds a day."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

from tests.lifecycle.observed import Observed, Place, Where
from tests.lifecycle.sent import BY_TABLE, TOPICS, Draft, Row, Sent, When, make_sent

UNSETTLED = ("new", "retrying", "failed")


@dataclass
class InHand:
    """A message between decoding and its acknowledgement: the windows of that time, and whether its
    day was missing at any moment."""

    oldest_until: date  # the latest start of retention
    newest_from: date
    newest_until: date
    day_missing: bool


@dataclass
class Model:
    """The broker's log, and everything that is known of it.

    Attributes:
        in_hand: By place, the messages that a consumer has decoded.
        acknowledged_rows: The rows that must be stored, because somebody was told that they are.
        by_hand: Rows among them that somebody wrote with SQL, with the text of the document.
        fates: `stored`, `expired`, `quarantined`, or the outcome of a retry.
        came_back: Archived days that had a partition again without being restored.
    """

    now: datetime
    retention: int
    ahead: int
    hold: int
    log: dict[str, list[Sent]] = field(default_factory=lambda: {topic: [] for topic in TOPICS})
    acknowledged: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOPICS, 0))
    in_hand: dict[Where, InHand] = field(default_factory=dict)
    acknowledged_rows: set[Row] = field(default_factory=set)
    by_hand: dict[Row, str] = field(default_factory=dict)
    fates: dict[Where, str] = field(default_factory=dict)
    came_back: set[Place] = field(default_factory=set)

    @property
    def today(self) -> date:
        return self.now.astimezone(UTC).date()

    @property
    def oldest(self) -> date:
        """The first day that is kept."""
        return self.today - timedelta(days=self.retention)

    @property
    def newest(self) -> date:
        """The last day of which versions are accepted."""
        return self.today + timedelta(days=self.ahead)

    def get_message(self, where: Where) -> Sent:
        return self.log[where[0]][where[1]]

    def send(self, draft: Draft, seen: Observed) -> None:
        one_day = timedelta(days=1)
        day = {
            When.TODAY: self.today,
            When.YESTERDAY: self.today - one_day,
            When.OLDEST: self.oldest,
            When.BEFORE: self.oldest - one_day,
            When.ARCHIVED: find_newest_archived(seen) or self.oldest - one_day,
            When.AHEAD: self.newest,
            When.BEYOND: self.newest + one_day,
        }[draft.day]
        log = self.log[draft.topic]
        log.append(make_sent(draft, day, len(log), self.now))

    def make_row_by_hand(self, day: date) -> tuple[Row, str]:
        """Return a version of a day that nobody sends, and the text of its document."""
        draft = Draft(id=100 + len(self.by_hand), version=1)
        return _with_text(make_sent(draft, day, 0, self.now))

    def repeat_row(self, row: Row) -> tuple[Row, str]:
        """Return a version that is stored, and the text of its document."""
        if row in self.by_hand:
            return row, self.by_hand[row]
        return next(
            _with_text(message)
            for log in self.log.values()
            for message in log
            if message.row == row
        )

    def note_decoded(self, message: Sent, seen: Observed) -> None:
        """A consumer has just decoded this message."""
        missing = not seen.has((message.table, message.day))
        self.in_hand[message.place] = InHand(self.oldest, self.newest, self.newest, missing)

    def note_moved_window(self) -> None:
        """The clock or retention has changed."""
        for in_hand in self.in_hand.values():
            in_hand.oldest_until = max(in_hand.oldest_until, self.oldest)
            in_hand.newest_from = min(in_hand.newest_from, self.newest)
            in_hand.newest_until = max(in_hand.newest_until, self.newest)

    def find_disputed_days(self) -> set[Place]:
        """Days with two contents of one version: one was archived, the other one came when the day
        was there again without its archived rows. maintain leaves such a day to people."""
        keys = Counter(row.key for row in self.acknowledged_rows)
        return {(row.table, row.day) for row in self.acknowledged_rows if keys[row.key] > 1}

    def list_unsettled(self, seen: Observed, place: Place) -> list[Sent]:
        """The unsettled messages in quarantine with a version of this table and day."""
        return [
            message
            for where, row in seen.quarantine.items()
            if row.status in UNSETTLED
            for message in (self.get_message(where),)
            if (message.table, message.day) == place
        ]

    def list_unread_topics(self, seen: Observed, place: Place) -> list[str]:
        """The topics of a table that may have unread versions of this day, as far as the ledger
        knows their end. A migration topic has old versions in new messages."""
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

    def is_held(self, seen: Observed, place: Place) -> bool:
        """Whether a day before retention must stay."""
        if place[1] < self.oldest - timedelta(days=self.hold):
            return False
        return bool(self.list_unsettled(seen, place) or self.list_unread_topics(seen, place))


def _with_text(message: Sent) -> tuple[Row, str]:
    assert message.row is not None
    text = message.value.decode()
    return message.row, text[text.index('"data": ') + len('"data": ') : -1]


def find_newest_archived(seen: Observed) -> date | None:
    return max((day for _, day in seen.archived), default=None)
