"""Sends mutated messages to the decoder: `python -m tests.fuzz --messages 1000000 --seed 1`.

Good messages of the simulator and of the contract are cut, spliced, and mixed with bytes that are
hard to parse. The decoder must return a record that keeps the contract, or a reject reason, and the
same result for the same bytes.
"""

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable
from itertools import islice

from annals.demo.simulator import generate_messages
from history.documents.jsonb import from_store
from history.documents.record import ID_LENGTH, MAX_VERSION, Record
from ingest.messages.decode import (
    ExpiredVersionError,
    RejectedMessageError,
    decode,
    decode_message,
)
from ingest.store.batch import Batch, Limits
from tests.messages import ALL, CHILD_TOPIC, NOW, SOURCE, TOPIC, WINDOW, make_message, make_value

PIECES = [
    b'"',
    b"\\",
    b"\\u",
    b"\\u0000",
    b"\\ud800",
    b"\\ud83d\\ude00",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"null",
    b"true",
    b"NaN",
    b"-",
    b"1e400000",
    b"0",
    b"00",
    b"9" * 40,
    b".5",
    b"\0",
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xef\xbb\xbf",
    b"\n",
    b" ",
    b'"id"',
    b'"version"',
    b'"data"',
    b'"updatedAt"',
    b'"type":2',
    b'"data":null',
    b"[" * 600,
    b"2026-02-30T00:00:00",
    b"+14:00",
    b"Z",
    b"0001-01-01T00:00:00",
    b"9999-12-31T23:59:59",
]


def classify_message(body: bytes, topic: str) -> tuple[str, Record | None]:
    """Decode a message, and check the result.

    Return `record`, `expired` or the reject reason, and the record if there is one.
    """
    try:
        record = decode(make_message(body, topic=topic), WINDOW)
    except RejectedMessageError as error:
        return (str(error.reason) if error.detail.encode() else "no detail"), None
    except ExpiredVersionError as error:
        return "expired", error.record
    assert 1 <= len(record.id) <= ID_LENGTH
    assert 0 <= record.version <= MAX_VERSION
    assert record.type in (0, 1, 2)
    assert WINDOW.start <= record.updated_at < WINDOW.end
    document = from_store(bytes(record.data))
    assert document[:1] == b"{" or (document == b"null" and record.type == 2)
    # Only a snapshot with a NUL character is serialized again, so its bytes can differ.
    assert document in body or (rb"\u0000" in document and rb"\u0000" in body)
    assert (record.product_instance_id is None) == (topic == TOPIC)
    f"{record.id}{record.client_id}{record.author}{record.product_instance_id}".encode()
    return "record", record


def _cut_bytes(random: random.Random, body: bytearray, _: list[bytes]) -> None:
    start = random.randrange(len(body) + 1)
    del body[start : start + random.randrange(1, 40)]


def _flip_bytes(random: random.Random, body: bytearray, _: list[bytes]) -> None:
    for _ in range(random.randrange(1, 4)):
        if body:
            body[random.randrange(len(body))] = random.randrange(256)


def _insert_piece(random: random.Random, body: bytearray, _: list[bytes]) -> None:
    place = random.randrange(len(body) + 1)
    body[place:place] = random.choice(PIECES)


def _overwrite_bytes(random: random.Random, body: bytearray, _: list[bytes]) -> None:
    place = random.randrange(len(body) + 1)
    body[place : place + random.randrange(1, 12)] = random.choice(PIECES)


def _splice_other(random: random.Random, body: bytearray, seeds: list[bytes]) -> None:
    other_seed = random.choice(seeds)
    start = random.randrange(len(other_seed) + 1)
    place = random.randrange(len(body) + 1)
    body[place:] = other_seed[start:]


def _repeat_part(random: random.Random, body: bytearray, _: list[bytes]) -> None:
    start = random.randrange(len(body) + 1)
    part = bytes(body[start : start + random.randrange(1, 60)])
    body[start:start] = part * random.randrange(1, 6)


MUTATIONS: list[Callable[[random.Random, bytearray, list[bytes]], None]] = [
    _cut_bytes,
    _flip_bytes,
    _insert_piece,
    _overwrite_bytes,
    _splice_other,
    _repeat_part,
]


def make_seeds() -> list[bytes]:
    """Return good and bad messages, none of them giant."""
    simulated = [
        message.value for message in islice(generate_messages(7, NOW, applications=20), 200)
    ]
    contract_values = [body for body in ALL if body]
    child_values = [make_value(productInstanceId="A1")] * 100
    return [body for body in (*simulated, *contract_values, *child_values) if len(body) < 10_000]


def run_mutations(random: random.Random, count: int) -> Counter[str]:
    """Decode `count` mutated messages, add each message to a batch, and count the outcomes.

    Raises:
        AssertionError: A message is decoded to a wrong record, or the batch does not reject exactly
            the messages that the decoder rejects, with the same reasons.
    """
    pool = make_seeds()
    counts: Counter[str] = Counter()
    batch = Batch(Limits(1_000, 1 << 30))
    for number in range(count):
        body = bytearray(random.choice(pool))
        for _ in range(random.choice((1, 1, 1, 2, 5))):
            random.choice(MUTATIONS)(random, body, pool)
        body_bytes, topic = bytes(body), random.choice((TOPIC, CHILD_TOPIC))
        kind, record = classify_message(body_bytes, topic)
        # A space at the end forces the decoder to parse the snapshot in a second pass.
        sent_again = body_bytes + b" " * body_bytes.endswith(b"}}")
        assert classify_message(sent_again, topic) == (kind, record), body_bytes
        counts[kind] += 1
        if batch.messages == 1_000:
            batch = Batch(Limits(1_000, 1 << 30))
        reject = batch.add(
            decode_message(make_message(body_bytes, number, topic), WINDOW), SOURCE, number
        )
        assert (reject is None) == (kind in ("record", "expired"))
        if reject is not None:
            assert reject.message.value == body_bytes
            assert reject.reason == kind
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.monotonic()
    counts = run_mutations(random.Random(options.seed), options.messages)
    for name, count in counts.most_common():
        print(f"{count:>10,}  {name}")
    print(
        f"{counts.total():,} mutated messages in {time.monotonic() - began:.0f} s, seed "
        f"{options.seed}: a record or a reason each time, the same again from the same bytes"
    )


if __name__ == "__main__":
    main()
