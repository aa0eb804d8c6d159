"""The invariants of the lifecycle test.

An invariant yields a sentence for every difference between the store and the model.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta

from tests.lifecycle.model import UNSETTLED, Model, PendingMessage
from tests.lifecycle.observed import Observed
from tests.lifecycle.sent import BY_TABLE, TOPICS, Row, Sent


@dataclass
class LifecycleStep:
    """An act that was done, with the fault or the second act that interrupted it."""

    name: str
    fault: str | None = None  # "kill", "cut" or "damage" if there was a fault
    meanwhile: str | None = None  # the act that a second process did during this act
    code: int = 0
    output: str = ""
    retried: list[str] = field(default_factory=list)  # why the consumer had to write again

    @property
    def alone(self) -> bool:
        """Whether neither a fault nor a second act interrupted this act."""
        return self.fault is None and self.meanwhile is None


def check(model: Model, before: Observed, after: Observed, step: LifecycleStep) -> list[str]:
    """Return a sentence for each difference between the store and the model after a step.

    Also note in the model which messages the ledger has counted in this step.
    """
    for where, pending in model.pending.items():
        message = model.get_message(where)
        missing = not after.has_partition((message.table, message.day))
        pending.day_missing |= missing or step.meanwhile is not None
    return [
        *_check_acknowledged(model, before, after),
        *_check_retried(model, before, after, step),
        *_check_stored_once(model, after),
        # Notes the days that came back, which _check_ledger needs.
        *_check_created_days(model, before, after, step),
        *_check_ledger(model, after),
        *_check_quarantine(model, before, after),
        *_check_maintained(model, before, after, step),
        *_check_seals(model, after, step),
        *_check_outcome(model, step),
    ]


def _check_acknowledged(model: Model, before: Observed, after: Observed) -> Iterator[str]:
    """Check and note the fates of the messages that the ledger has just counted."""
    observed_rows = before.anywhere | after.anywhere
    for topic, row in after.ledger.items():
        for offset in range(model.acknowledged[topic], row.next_offset):
            message = model.log[topic][offset]
            pending = model.pending.pop(message.place, None)
            if pending is None:
                yield f"{message} was acknowledged, but nobody has read it"
            else:
                yield from _check_fate(model, message, pending, observed_rows, after)
        if row.next_offset < model.acknowledged[topic]:
            yield f"the ledger of {topic} went back to {row.next_offset}"
        model.acknowledged[topic] = row.next_offset


def _check_fate(
    model: Model, message: Sent, pending: PendingMessage, observed_rows: set[Row], after: Observed
) -> Iterator[str]:
    row, bad = message.row, after.quarantine.get(message.place)
    if bad is not None:
        model.fates[message.place] = "quarantined"
        yield from _check_quarantined(message, pending, observed_rows, bad.reason)
    elif not message.readable:
        yield f"{message} cannot be decoded, but is not in quarantine"
    elif row is not None and row in after.anywhere:
        model.fates[message.place] = "stored"
        model.acknowledged_rows.add(row)
        if row.day > pending.newest_until:
            yield f"{message} is stored, but it is after {pending.newest_until}"
    else:
        model.fates[message.place] = "expired"
        yield from _check_expired(message, pending)


def _check_quarantined(
    message: Sent, pending: PendingMessage, observed_rows: set[Row], reason: str
) -> Iterator[str]:
    row = message.row
    if row is None or (reason == "in_the_future" and row.day > pending.newest_from):
        return
    if reason == "divergent_duplicate" and any(
        row.key == candidate.key and row != candidate for candidate in observed_rows
    ):
        return
    yield f"{message} is good, but in quarantine: {reason}"


def _check_expired(message: Sent, pending: PendingMessage) -> Iterator[str]:
    if message.day >= pending.oldest_until:
        yield f"{message} was acknowledged and is nowhere, but it is not older than retention"
    elif not pending.day_missing:
        yield f"{message} counts as expired, but its day was there all the time"


def _check_retried(
    model: Model, before: Observed, after: Observed, step: LifecycleStep
) -> Iterator[str]:
    """Check and note the fates of the messages that left the quarantine."""
    for where, bad in {**after.removed, **after.quarantine}.items():
        if bad.status != "resolved" or model.fates.get(where) != "quarantined":
            continue
        message = model.get_message(where)
        model.fates[where] = bad.outcome
        if bad.outcome == "expired":
            place = message.table, message.day
            missing = not (
                before.has_partition(place) and after.has_partition(place) and step.alone
            )
            pending = PendingMessage(model.oldest, model.newest, model.newest, missing)
            yield from _check_expired(message, pending)
        elif message.row is None or message.row not in after.anywhere:
            yield f"{message} left the quarantine as {bad.outcome}, but is nowhere"
        else:
            model.acknowledged_rows.add(message.row)


def _check_stored_once(model: Model, after: Observed) -> Iterator[str]:
    """Check that every acknowledged version is stored once, with the content of its message.

    It must be in a table or in the archive. A version in both counts once.
    """
    versions = after.anywhere
    yield from (
        f"{row} was acknowledged and is nowhere" for row in model.acknowledged_rows - versions
    )
    yield from (
        f"{row} is stored, but nobody sent it: {row.data}"
        for row in versions - model.acknowledged_rows
    )
    for name, rows in (("tables", after.rows), ("archive", after.archive)):
        yield from (f"{row} is {n} times in the {name}" for row, n in rows.items() if n > 1)


def _check_ledger(model: Model, after: Observed) -> Iterator[str]:
    """Check that the counts of the ledger add up and agree with the fates."""
    stored = 0
    for topic in TOPICS:
        row = after.ledger.get(topic)
        if row is None:
            continue
        stored += row.stored
        fates = Counter(model.fates.get((topic, offset)) for offset in range(row.next_offset))
        present, removed = (
            sum(bad.status != "resolved" for where, bad in rows.items() if where[0] == topic)
            for rows in (after.quarantine, after.removed)
        )
        expected = {
            "read": (row.read, row.next_offset - row.first_offset),
            "sum": (row.stored + row.repeated + row.expired + row.quarantined, row.read),
            "quarantined": (row.quarantined, present + removed),
            "removed from quarantine": (row.quarantine_removed, removed),
            "skipped and lost": (row.skipped + row.lost, 0),
        }
        for name, (count, right) in expected.items():
            if count != right:
                yield f"the ledger of {topic} says {name} {count}, not {right}"
        # A repeat of an archived row counts as expired, but the model finds its row and calls it
        # stored.
        if not fates["expired"] <= row.expired <= fates["expired"] + fates["stored"]:
            yield f"the ledger of {topic} says {row.expired} expired, not {fates['expired']}"
    sent = len(model.acknowledged_rows - model.by_hand.keys())
    if stored < sent or (stored > sent and not model.came_back):
        yield f"the ledger says {stored} stored, not {sent}"


def _check_quarantine(model: Model, before: Observed, after: Observed) -> Iterator[str]:
    """Check that quarantine keeps a message, byte for byte, as long as a retry could store it."""
    for where, bad in after.quarantine.items():
        message = model.get_message(where)
        if bad.status in UNSETTLED and bytes(bad.value or b"") != message.value:
            yield f"{message} is in quarantine with other bytes than it came with"
    for where in after.removed.keys() - before.removed.keys():
        message, status = model.get_message(where), after.removed[where].status
        recent = status in UNSETTLED or message.sent.date() >= model.oldest
        if message.day >= model.oldest and recent:
            yield f"{message} ({status}) was removed from quarantine, but its day is kept"


def _check_created_days(
    model: Model, before: Observed, after: Observed, step: LifecycleStep
) -> Iterator[str]:
    """Check that only `partitions restore` creates a day that is older than retention.

    Also note in `model.came_back` which archived days have a partition again.
    """
    for place, day in after.days.items():
        # A write may have created the day before a concurrent restore added its rows.
        written = {step.name, step.meanwhile} == {"write", "restore"} and place not in before.days
        if place in after.archived and day.attached and (written or not day.restored):
            model.came_back.add(place)
        new = place not in before.days and not day.restored
        if new and step.alone and place[1] < model.oldest:
            yield f"{day.name} was created, but it is before retention"


def _check_maintained(
    model: Model, before: Observed, after: Observed, step: LifecycleStep
) -> Iterator[str]:
    """Check that maintain drops old days that are not held, and creates the days of the window."""
    if step.name != "maintain" or not step.alone:
        return
    for place in before.days.keys() - after.days.keys():
        if place[1] >= model.oldest:
            yield f"{place[0]} {place[1]} was dropped, but it is inside retention"
        elif model.is_held(before, place):
            yield f"{place[0]} {place[1]} was dropped, but it is held"
    for place, day in after.days.items():
        is_held = model.is_held(before, place) or model.is_held(after, place) or day.restored
        if place[1] < model.oldest and not is_held and place not in model.find_disputed_days():
            yield f"{day.name} was not dropped, but nothing holds it: {step.output}"
    for table in BY_TABLE:
        for number in range((model.newest - model.oldest).days + 1):
            place = (table, model.oldest + timedelta(days=number))
            if not after.has_partition(place):
                yield f"{table} has no {place[1]} after maintain: {step.output}"


def _check_seals(model: Model, after: Observed, step: LifecycleStep) -> Iterator[str]:
    """Check that maintain does not seal a day that never had a row.

    Rows of a later backfill would break such a seal.
    """
    filled = {(row.table, row.day) for row in model.acknowledged_rows}
    for place, (_, rows) in after.sealed.items():
        if step.name == "maintain" and rows == 0 and place not in filled:
            yield f"{place[0]} {place[1]} was sealed, but it never had a row"


def _check_outcome(model: Model, step: LifecycleStep) -> Iterator[str]:
    """Check the exit code of the command, and that the consumer wrote at its first attempt."""
    broken = step.code >= 2 and step.name == "maintain" and not model.find_disputed_days()
    if step.alone and (broken or step.code > 2):
        yield f"{step.name} ends with {step.code}: {step.output}"
    for reason in step.retried:
        if step.alone or "ForeignTable" in reason:
            yield f"the consumer could not write at once: {reason}"
