"""Kafka deletes messages before Annals reads them, and `gaps heal` gets the versions back."""

import json
import time

from confluent_kafka import TopicPartition
from django.db import transaction

import outbox
from annals.embedded import logins
from outbox.recording.writer import Change
from tests.consuming import run_command
from tests.kafka import brokers
from tests.outbox import processes, relays
from tests.outbox.fault_stand import FaultStand
from tests.outbox.faults import compare_with_annals
from tests.outbox.relays import TOPIC

DOCUMENTS = 50
# Asks as the login `support`, which may see every application in demo mode.
TIMELINE_PROGRAM = """
import base64
from django.test import Client
login = "Basic " + base64.b64encode(b"support:support").decode()
answer = Client(headers={{"Authorization": login, "Host": "localhost"}}).get(
    "/api/v1/history/product-instance/{id}", {{"sort": "version", "order": "asc"}}
)
print(answer.content.decode())
"""


def make_and_heal_hole(stand: FaultStand) -> str:
    """Delete some unread messages, and get their versions back with `gaps heal`.

    Annals reads the first three versions of each document. Kafka deletes some of the next seven
    versions before Annals reads them. Then Annals reads the eleventh version. `gaps` finds the
    missing versions, and `gaps heal` requests them from the outbox through Kafka.
    """

    def read_totals() -> dict[str, int]:
        missing: dict[str, int] = stand.consumers.read_ledger()["totals"]
        return missing

    _record_versions(0, 3)
    relays.wait_until(lambda: not relays.count_waiting(), 120)
    relays.wait_until(lambda: read_totals()["lag"] == 0, 120)
    stand.consumers.all[-1].terminate(60)
    earlier_ends = stand.fetch_ends()
    _record_versions(3, 10)
    relays.wait_until(lambda: not relays.count_waiting(), 120)
    later_ends = stand.fetch_ends()
    until = {number: (earlier_ends[number] + 2 * later_ends[number]) // 3 for number in later_ends}
    client = brokers.make_admin_client(stand.broker)
    futures = client.delete_records(
        [TopicPartition(TOPIC, number, offset) for number, offset in until.items()]
    )
    for future in futures.values():
        future.result(120)
    deleted = sum(until[number] - earlier_ends[number] for number in until)
    _record_versions(10, 11)
    stand.consumers.start_consumer()
    relays.wait_until(
        lambda: stand.consumers.read_ledger()["totals"]["lag"] == 0 and not relays.count_waiting(),
        180,
    )
    relays.wait_until(lambda: stand.consumers.read_ledger()["totals"]["lost"] == deleted, 120)
    missing = _count_missing(stand)
    assert missing == deleted, (missing, deleted)
    began = time.monotonic()
    finished = stand.consumers.run_command("gaps", "heal", "--json")
    assert finished.returncode == 0, finished.stderr + finished.stdout
    assert json.loads(finished.stdout)["versions"] == deleted
    answer = processes.start_command(
        "outbox answer --until-idle 10",
        stand.shop,
        stand.home / "answer.log",
        OUTBOX_TEST_SETTINGS={"KAFKA": stand.broker.make_client_config()},
    )
    with processes.kill_at_end([answer]):
        relays.wait_until(lambda: _count_missing(stand) == 0, 120)
    seconds = time.monotonic() - began
    for id in ("H0", "H1", "H2"):
        _check_timeline(stand, id)
    return (
        f"{deleted} unread messages deleted, all found by gaps, all sent again by the outbox in"
        f" {seconds:.1f} s: {compare_with_annals(stand, missing=deleted)}"
    )


def _check_timeline(stand: FaultStand, id: str) -> None:
    """Assert that the timeline has all eleven versions, with the changes of each version."""
    web = stand.consumers.env | {"DATABASE_URL": stand.database.build_url(logins.WEB)}
    finished = run_command(web, "shell", "--no-imports", "-c", TIMELINE_PROGRAM.format(id=id))
    assert finished.returncode == 0, finished.stderr
    timeline = json.loads(finished.stdout)["data"]["history"]
    assert [version["version"] for version in timeline] == list(range(1, 12))
    assert all(version["diff"] for version in timeline[1:])


def _record_versions(first: int, end: int) -> None:
    """Record the versions `first` to `end - 1` of all documents.

    Each transaction records one version of every document.
    """
    for n in range(first, end):
        changes = [Change("product-instance", f"H{id}", {"n": n}) for id in range(DOCUMENTS)]
        with transaction.atomic():
            outbox.record_many(changes)


def _count_missing(stand: FaultStand) -> int:
    """Return how many versions `manage.py gaps` reports as missing."""
    owner = stand.consumers.env | {"DATABASE_URL": stand.database.build_url(logins.OWNER)}
    finished = run_command(owner, "gaps", "--json")
    assert finished.returncode in (0, 1), finished.stderr
    return int(json.loads(finished.stdout)["versions"])
