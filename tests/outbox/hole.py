"""A hole in the topic: messages that Kafka deletes before Annals reads them, found and healed."""

from __future__ import annotations

import json
import time

from confluent_kafka import Consumer, TopicPartition
from django.db import transaction

import outbox
from outbox.writer import Change
from tests.kafka import brokers
from tests.outbox import relays
from tests.outbox.faults import compare
from tests.outbox.relays import TOPIC
from tests.outbox.serving import TOKEN, serving
from tests.outbox.whole import Whole

DOCUMENTS = 50
# As a person of support asks, who may see every application in demo mode.
ASK = """
import base64
from django.test import Client
login = "Basic " + base64.b64encode(b"support:support").decode()
answer = Client(headers={{"Authorization": login, "Host": "localhost"}}).get(
    "/api/v1/history/product-instance/{id}", {{"sort": "version", "order": "asc"}}
)
print(answer.content.decode())
"""
SOURCE = """
[[source]]
name = "shop"
url = "{url}"
token_file = "{token}"
kinds = ["product-instance"]
requests_per_second = 100
"""


def heal(place: Whole) -> str:
    """Three versions of each document are read by Annals, the next seven partly deleted, the last
    one read. `gaps` finds what is missing, `gaps heal` asks the outbox for it."""
    _record(0, 3)
    relays.until(lambda: not relays.waiting(), 60)
    relays.until(lambda: place.ledger()["totals"]["lag"] == 0, 120)
    place.stop_consumer()
    before = _ends(place)
    _record(3, 10)
    relays.until(lambda: not relays.waiting(), 60)
    after = _ends(place)
    until = {number: (before[number] + 2 * after[number]) // 3 for number in after}
    client = brokers.admin(place.broker)
    asked = client.delete_records(
        [TopicPartition(TOPIC, number, offset) for number, offset in until.items()]
    )
    for future in asked.values():
        future.result(30)
    deleted = sum(until[number] - before[number] for number in until)
    _record(10, 11)
    place.start_consumer()
    relays.until(lambda: place.ledger()["totals"]["lag"] == 0 and not relays.waiting(), 180)
    assert place.ledger()["totals"]["lost"] == deleted
    found = _found(place)
    assert found == deleted, (found, deleted)
    began = time.monotonic()
    with serving(place.shop, place.home, KAFKA=place.broker.client()) as url:
        file = place.home / "sources.toml"
        file.write_text(SOURCE.format(url=url, token=place.home / "resend.token"))
        assert TOKEN in (place.home / "resend.token").read_text()
        done = place.manage("gaps", "heal", "--json", ANNALS_SOURCES_FILE=str(file))
    assert done.returncode == 0, done.stderr + done.stdout
    took = time.monotonic() - began
    assert _found(place) == 0
    [(recovered,)] = place.rows("SELECT count(*) FROM recovered_version WHERE source = 'shop'")
    assert recovered == deleted
    for id in ("H0", "H1", "H2"):
        _check_timeline(place, id)
    return (
        f"{deleted} unread messages deleted, all found by gaps, all recovered from the outbox in"
        f" {took:.1f} s: {compare(place, missing=deleted)}"
    )


def _check_timeline(place: Whole, id: str) -> None:
    """All eleven versions, each compared with the one before, and those that were recovered are
    marked."""
    done = place.manage("shell", "--no-imports", "-c", ASK.format(id=id))
    assert done.returncode == 0, done.stderr
    timeline = json.loads(done.stdout)["data"]["history"]
    assert [each["version"] for each in timeline] == list(range(1, 12))
    assert all(each["diff"] for each in timeline[1:])
    rows = place.rows(f"SELECT version FROM recovered_version WHERE row_id = '{id}'")
    marked = {each["version"] for each in timeline if each.get("recovered")}
    assert marked == {version for (version,) in rows}
    assert marked


def _record(first: int, end: int) -> None:
    """The versions of each document from one number to another, a transaction for each number."""
    for n in range(first, end):
        changes = [Change("product-instance", f"H{id}", {"n": n}) for id in range(DOCUMENTS)]
        with transaction.atomic():
            outbox.record_many(changes)


def _found(place: Whole) -> int:
    """How many versions are missing, as `manage.py gaps` says."""
    done = place.manage("gaps", "--json")
    assert done.returncode in (0, 1), done.stderr
    return int(json.loads(done.stdout)["versions"])


def _ends(place: Whole) -> dict[int, int]:
    """By partition: the offset after the newest message."""
    client = Consumer({**place.broker.client(), "group.id": "none"})
    try:
        return {
            number: client.get_watermark_offsets(TopicPartition(TOPIC, number), timeout=20)[1]
            for number in range(3)
        }
    finally:
        client.close()
