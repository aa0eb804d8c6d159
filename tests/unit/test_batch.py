"""Batches: what they take, what they count, and that offsets stay contiguous."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from history.entities import ENTITIES
from ingest.consumer.lanes import BoundedCache
from ingest.source.decode import Reason
from ingest.source.message import Message, TopicPartition
from ingest.store.batch import GIANT_BYTES, Batch, Gap, Limits, PartitionProgress
from tests.messages import CHILD, EXPIRED, SOURCE, TOPIC, WINDOW, message, value, with_data

ROOMY = Limits(1_000, 1 << 30)
CHILD_SOURCE = TopicPartition(CHILD, "id-of-child", 0)


def sized(size: int, offset: int = 0) -> Message:
    """A good message of exactly this number of bytes with its key."""
    padding = size - message(with_data(b'{"a":""}')).size
    found = message(with_data(b'{"a":"' + b"x" * padding + b'"}'), offset)
    assert found.size == size
    return found


def filled(*messages: Message, limits: Limits = ROOMY) -> Batch:
    batch = Batch(limits)
    for each in messages:
        assert batch.takes(each)
        batch.add(each, SOURCE, each.offset, WINDOW)
    return batch


def test_counts_of_good_bad_and_expired() -> None:
    bodies = [value(), b"bad", EXPIRED, value(version=8), EXPIRED]
    batch = Batch(ROOMY)
    rejects = [
        batch.add(message(body, 10 + n), SOURCE, 10 + n, WINDOW) for n, body in enumerate(bodies)
    ]
    assert [None if each is None else each.reason for each in rejects] == [
        *(None, Reason.NOT_JSON, None, None, None),
    ]
    assert batch.rejects == [rejects[1]]
    assert batch.messages == 5
    assert batch.bytes == sum(len(body) + len(b"key") for body in bodies)
    assert [row.record.version for row in batch.rows["product-instance"]] == [7, 8]
    assert batch.progress == {SOURCE: PartitionProgress(10, 15, read=5, good=2, expired=2)}


def test_the_newest_timestamp_of_a_partition() -> None:
    batch = Batch(ROOMY)
    for offset, stamp in enumerate((5, 9, -1, 7)):
        each = Message(TOPIC, 0, offset, stamp, None, value())
        batch.add(each, SOURCE, offset, WINDOW)
    assert batch.progress[SOURCE].newest_timestamp == 9


def test_rows_are_a_limit() -> None:
    limits = Limits(3, 1 << 30)
    assert filled(*(sized(500, n) for n in range(2)), limits=limits).takes(sized(500, 2))
    assert not filled(*(sized(500, n) for n in range(3)), limits=limits).takes(sized(500, 3))


def test_bytes_are_a_limit_headers_counted() -> None:
    limits = Limits(1_000, 2_000)
    assert filled(sized(1_000), limits=limits).takes(sized(1_000, 1))
    assert not filled(sized(1_000), limits=limits).takes(sized(1_001, 1))
    laden = message(sized(900).value, 1, headers=(("name", b"x" * 97), ("none", None)))
    assert laden.size == 900 + len("name") + 97 + len("none")
    assert not filled(sized(1_000), limits=limits).takes(laden)


def test_an_empty_batch_takes_anything() -> None:
    assert Batch(Limits(1, 1)).takes(sized(10_000))


def test_giants_travel_alone() -> None:
    small, giant = sized(GIANT_BYTES), sized(GIANT_BYTES + 1)
    assert filled(small).takes(small)
    assert not filled(small).takes(giant)
    assert not filled(giant).takes(small)
    assert filled(giant).takes(giant)


def test_gaps_are_kept_and_passed() -> None:
    batch = Batch(ROOMY)
    gaps = (Gap(0, 3, lost=True), Gap(3, 5, lost=False))
    batch.add(message(value(), 5), SOURCE, 0, WINDOW, gaps)
    batch.add(message(value(), 6), SOURCE, 6, WINDOW)
    assert batch.progress == {SOURCE: PartitionProgress(0, 7, read=2, good=2, gaps=[*gaps])}


def test_kinds_come_in_the_order_of_declaration() -> None:
    """Two writers must lock tables in the same order."""
    batch = Batch(ROOMY)
    for number, entity in enumerate(reversed(ENTITIES)):
        source = TopicPartition(entity.topics[0], "id", 0)
        body = message(value(productInstanceId="A1"), number, entity.topics[0])
        batch.add(body, source, number, WINDOW)
    assert batch.entities() == [entity.name for entity in ENTITIES]


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.integers(0, 2)), max_size=60))
def test_what_was_read_is_what_lies_between_start_and_next(
    steps: list[tuple[int, bool, int]],
) -> None:
    """For any messages in any order of partitions: next - start = read + gaps, and each message
    is a row, a reject or counted as expired."""
    batch = Batch(ROOMY)
    offsets = dict.fromkeys(range(3), 0)
    for partition, good, hole in steps:
        source = TopicPartition(TOPIC, "id", partition)
        expected = offsets[partition]
        offset = expected + hole
        gaps = (Gap(expected, offset, lost=False),) if hole else ()
        body = value() if good else b"bad"
        batch.add(message(body, offset, partition=partition), source, expected, WINDOW, gaps)
        offsets[partition] = offset + 1
    for source, progress in batch.progress.items():
        missed = sum(gap.end - gap.start for gap in progress.gaps)
        assert progress.next - progress.start == progress.read + missed
        assert (progress.start, progress.next) == (0, offsets[source.partition])
    rows = sum(len(rows) for rows in batch.rows.values())
    assert rows + len(batch.rejects) == batch.messages == len(steps)


BODIES = st.sampled_from([value(), value(version=8), b"bad", EXPIRED, sized(GIANT_BYTES + 1).value])
STEPS = st.lists(st.tuples(st.sampled_from([0, 0, 0, 0, 0, 1, 3]), BODIES), max_size=12)


@given(STEPS, st.integers(1, 8), st.sampled_from([1, 2_000, 1 << 30]), st.booleans())
def test_a_run_is_taken_as_its_messages_are_one_by_one(
    steps: list[tuple[int, bytes]], rows: int, size: int, skipping: bool
) -> None:
    """Up to a hole that nobody explained, to what does not fit, and to the first bad message."""
    messages, offset = [], 5
    for hole, body in steps:
        offset += hole
        messages.append(Message(TOPIC, 0, offset, offset * 7 % 5, b"key", body))
        offset += 1
    one_by_one, at_once = Batch(Limits(rows, size)), Batch(Limits(rows, size))
    expected, added, reject = 5, 0, None
    for each in messages:
        hole = each.offset != expected
        if (hole and not skipping) or not one_by_one.takes(each):
            break
        gaps = (Gap(expected, each.offset, lost=False),) if hole else ()
        reject = one_by_one.add(each, SOURCE, expected, WINDOW, gaps)
        expected, added = each.offset + 1, added + 1
        if reject is not None:
            break
    assert at_once.add_run(messages, SOURCE, 5, WINDOW, skipping) == (added, reject)
    for batch in (one_by_one, at_once):
        batch.arrange()
    for name in ("messages", "bytes", "rows", "keys", "expired", "rejects", "progress"):
        assert getattr(one_by_one, name) == getattr(at_once, name)
    assert [each.takes(sized(900)) for each in (one_by_one, at_once)] in ([True] * 2, [False] * 2)


def test_a_run_is_of_one_partition() -> None:
    messages = [Message(TOPIC, 0, 3, 0, None, value()), Message(CHILD, 0, 4, 0, None, value())]
    batch = Batch(ROOMY)
    assert batch.add_run(messages, SOURCE, 3, WINDOW) == (1, None)
    assert batch.add_run([Message(TOPIC, 1, 4, 0, None, value())], SOURCE, 4, WINDOW) == (0, None)
    assert list(batch.progress) == [SOURCE]


def test_it_keeps_the_last_names_and_at_most_twice_as_many() -> None:
    memory: BoundedCache[int] = BoundedCache(10)
    for number in range(100):
        memory.update({str(number): number})
        assert all(memory.get(str(n)) == n for n in range(max(0, number - 9), number + 1))
        assert sum(memory.get(str(n)) is not None for n in range(number + 1)) <= 20
    assert memory.get("0") is None


def test_the_last_value_counts() -> None:
    memory: BoundedCache[int] = BoundedCache(2)
    for values in ({"a": 1, "b": 1}, {"a": 2}):
        memory.update(values)
    assert (memory.get("a"), memory.get("b")) == (2, 1)
