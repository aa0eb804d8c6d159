"""Mutated messages through the decoder: `python -m tests.fuzz --messages 1000000 --seed 1`.

Good messages of the simulator and of the contract are cut, swapped, spliced and sprinkled with what
parsers stumble over. Whatever comes of it must be a record that keeps the contract, or a named
reason, and the same again from the same bytes.
"""

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable
from itertools import islice

from annals.demo.simulator import stream
from history.documents.jsonb import from_store
from history.record import ID_LENGTH, MAX_VERSION, Record
from ingest.source.decode import ExpiredVersion, RejectedMessage, decode, decode_message
from ingest.store.batch import Batch, Limits
from tests.messages import ALL, CHILD, NOW, SOURCE, TOPIC, WINDOW, message, value

PIECES = [
    *(b'"', b"\\", b"\\u", b"\\u0000", b"\\ud800", b"\\ud83d\\ude00", b"{", b"}", b"[", b"]"),
    *(b":", b",", b"null", b"true", b"NaN", b"-", b"1e400000", b"0", b"00", b"9" * 40, b".5"),
    *(b"\0", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf", b"\n", b" "),
    *(b'"id"', b'"version"', b'"data"', b'"updatedAt"', b'"type":2', b'"data":null', b"[" * 600),
    *(b"2026-02-30T00:00:00", b"+14:00", b"Z", b"0001-01-01T00:00:00", b"9999-12-31T23:59:59"),
]


def outcome(body: bytes, topic: str) -> tuple[str, Record | None]:
    """`record`, `expired`, or the reason of the rejection; and the record. What came is checked."""
    try:
        found = decode(message(body, topic=topic), WINDOW)
    except RejectedMessage as error:
        return (str(error.reason) if error.detail.encode() else "no detail"), None
    except ExpiredVersion as error:
        return "expired", error.record
    assert 1 <= len(found.id) <= ID_LENGTH
    assert 0 <= found.version <= MAX_VERSION
    assert found.type in (0, 1, 2)
    assert WINDOW.start <= found.updated_at < WINDOW.end
    document = from_store(bytes(found.data))
    assert document[:1] == b"{" or (document == b"null" and found.type == 2)
    # A document with a NUL character is the only one that is written again.
    assert document in body or (rb"\u0000" in document and rb"\u0000" in body)
    assert (found.product_instance_id is None) == (topic == TOPIC)
    f"{found.id}{found.client_id}{found.author}{found.product_instance_id}".encode()
    return "record", found


def _cut(random: random.Random, body: bytearray, _: list[bytes]) -> None:
    start = random.randrange(len(body) + 1)
    del body[start : start + random.randrange(1, 40)]


def _flip(random: random.Random, body: bytearray, _: list[bytes]) -> None:
    for _ in range(random.randrange(1, 4)):
        if body:
            body[random.randrange(len(body))] = random.randrange(256)


def _insert(random: random.Random, body: bytearray, _: list[bytes]) -> None:
    place = random.randrange(len(body) + 1)
    body[place:place] = random.choice(PIECES)


def _overwrite(random: random.Random, body: bytearray, _: list[bytes]) -> None:
    """Replace one token: a word, a number, a bracket."""
    place = random.randrange(len(body) + 1)
    body[place : place + random.randrange(1, 12)] = random.choice(PIECES)


def _splice(random: random.Random, body: bytearray, seeds: list[bytes]) -> None:
    other = random.choice(seeds)
    start = random.randrange(len(other) + 1)
    place = random.randrange(len(body) + 1)
    body[place:] = other[start:]


def _repeat(random: random.Random, body: bytearray, _: list[bytes]) -> None:
    start = random.randrange(len(body) + 1)
    part = bytes(body[start : start + random.randrange(1, 60)])
    body[start:start] = part * random.randrange(1, 6)


MUTATIONS: list[Callable[[random.Random, bytearray, list[bytes]], None]] = [
    *(_cut, _flip, _insert, _overwrite, _splice, _repeat),
]


def seeds() -> list[bytes]:
    """Good messages and bad ones, none of them giant."""
    made = [each.value for each in islice(stream(7, NOW, applications=20), 200)]
    known = [body for body in ALL if body]
    plain = [value(productInstanceId="A1")] * 100
    return [body for body in (*made, *known, *plain) if len(body) < 10_000]


def run(random: random.Random, count: int) -> Counter[str]:
    """Try this number of mutations; gives how often each outcome was met. Every message also goes
    through a batch, as in the consumer, which must take it whatever it is."""
    pool = seeds()
    counts: Counter[str] = Counter()
    batch = Batch(Limits(1_000, 1 << 30))
    for number in range(count):
        body = bytearray(random.choice(pool))
        for _ in range(random.choice((1, 1, 1, 2, 5))):
            random.choice(MUTATIONS)(random, body, pool)
        bytes_, topic = bytes(body), random.choice((TOPIC, CHILD))
        found, record = outcome(bytes_, topic)
        # With a space after it a message is not read in one pass with its snapshot.
        again = bytes_ + b" " * bytes_.endswith(b"}}")
        assert outcome(again, topic) == (found, record), bytes_
        counts[found] += 1
        if batch.messages == 1_000:
            batch = Batch(Limits(1_000, 1 << 30))
        reject = batch.add(decode_message(message(bytes_, number, topic), WINDOW), SOURCE, number)
        assert (reject is None) == (found in ("record", "expired"))
        if reject is not None:
            assert reject.message.value == bytes_
            assert reject.reason == found
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.monotonic()
    counts = run(random.Random(options.seed), options.messages)
    for name, count in counts.most_common():
        print(f"{count:>10,}  {name}")
    print(
        f"{counts.total():,} mutated messages in {time.monotonic() - began:.0f} s, seed "
        f"{options.seed}: a record or a reason each time, the same again from the same bytes"
    )


if __name__ == "__main__":
    main()
