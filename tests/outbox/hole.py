"""A hole in the topic: messages that Kafka deletes before Annals reads them, found and healed."""

import json
import time

from confluent_kafka import TopicPartition
from django.db import transaction

import outbox
from annals.embedded import logins
from outbox.writer import Change
from tests.consuming import command
from tests.kafka import brokers
from tests.outbox import processes, relays
from tests.outbox.faults import compare
from tests.outbox.relays import TOPIC
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


def heal(place: Whole) -> str:
    """Three versions of each document are read by Annals, the next seven partly deleted, the last
    one read. `gaps` finds what is missing, `gaps heal` asks the outbox for it in Kafka."""

    def totals() -> dict[str, int]:
        found: dict[str, int] = place.consumers.ledger()["totals"]
        return found

    _record(0, 3)
    relays.until(lambda: not relays.waiting(), 60)
    relays.until(lambda: totals()["lag"] == 0, 120)
    place.consumers.all[-1].terminate(60)
    before = place.ends()
    _record(3, 10)
    relays.until(lambda: not relays.waiting(), 60)
    after = place.ends()
    until = {number: (before[number] + 2 * after[number]) // 3 for number in after}
    client = brokers.admin(place.broker)
    asked = client.delete_records(
        [TopicPartition(TOPIC, number, offset) for number, offset in until.items()]
    )
    for future in asked.values():
        future.result(30)
    deleted = sum(until[number] - before[number] for number in until)
    _record(10, 11)
    place.consumers.start()
    relays.until(
        lambda: place.consumers.ledger()["totals"]["lag"] == 0 and not relays.waiting(), 180
    )
    relays.until(lambda: place.consumers.ledger()["totals"]["lost"] == deleted, 60)
    found = _found(place)
    assert found == deleted, (found, deleted)
    began = time.monotonic()
    done = place.consumers.manage("gaps", "heal", "--json")
    assert done.returncode == 0, done.stderr + done.stdout
    assert json.loads(done.stdout)["versions"] == deleted
    answer = processes.start(
        "outbox answer --until-idle 10", place.shop, place.home / "answer.log",
        OUTBOX_TEST_SETTINGS={"KAFKA": place.broker.client()},
    )  # fmt: skip
    with processes.kept([answer]):
        relays.until(lambda: _found(place) == 0, 120)
    took = time.monotonic() - began
    for id in ("H0", "H1", "H2"):
        _check_timeline(place, id)
    return (
        f"{deleted} unread messages deleted, all found by gaps, all sent again by the outbox in"
        f" {took:.1f} s: {compare(place, missing=deleted)}"
    )


def _check_timeline(place: Whole, id: str) -> None:
    """All eleven versions, each compared with the one before."""
    web = place.consumers.env | {"DATABASE_URL": place.database.url_of(logins.WEB)}
    done = command(web, "shell", "--no-imports", "-c", ASK.format(id=id))
    assert done.returncode == 0, done.stderr
    timeline = json.loads(done.stdout)["data"]["history"]
    assert [each["version"] for each in timeline] == list(range(1, 12))
    assert all(each["diff"] for each in timeline[1:])


def _record(first: int, end: int) -> None:
    """The versions of each document from one number to another, a transaction for each number."""
    for n in range(first, end):
        changes = [Change("product-instance", f"H{id}", {"n": n}) for id in range(DOCUMENTS)]
        with transaction.atomic():
            outbox.record_many(changes)


def _found(place: Whole) -> int:
    """How many versions are missing, as `manage.py gaps` says."""
    owner = place.consumers.env | {"DATABASE_URL": place.database.url_of(logins.OWNER)}
    done = command(owner, "gaps", "--json")
    assert done.returncode in (0, 1), done.stderr
    return int(json.loads(done.stdout)["versions"])
