"""`scripts/demo --check`: runs everything once on a small load and verifies the result."""

import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from annals.demo import shop
from annals.demo.client import DemoClient, DemoClientError
from annals.demo.simulator import SimulatedMessage, generate_messages
from annals.demo.supervisor import ANNALS_COMMAND, DemoProcess, DemoSupervisor, print_step
from annals.embedded import logins, process
from history.documents import exactjson
from ingest.kafka.producer import KafkaProducer

# Retention is short, so that the load fills most of its days. The session timeout is short, so that
# the consumer joins its group soon.
SMALL_SETTINGS = {
    "ANNALS_RETENTION_DAYS": "22",
    "ANNALS_AHEAD_DAYS": "2",
    "ANNALS_KAFKA_SESSION_TIMEOUT_MS": "2000",
}
SEED = 7
LOAD = ("--messages", "1000", "--days", "20", "--seed", str(SEED), "--json")
REPEATS = 25
PAGE_SIZE = 7  # so small that most timelines have several pages
CONCURRENT_REQUESTS = 4

# A message for each kind of error: no JSON, a wrong type, time or value, a missing field.
BAD_MESSAGES = (
    b"not JSON",
    b'{"id": "bad-1", "version": "one"}',
    b'{"id": "bad-2", "version": 1, "type": "CREATE", "updatedAt": "yesterday", "clientId": "x",'
    b' "data": {}}',
    b'{"id": "bad-3", "version": 1, "type": "CREATE", "updatedAt": "2025-07-03T11:42:48", "data":'
    b' {"no": "clientId"}}',
    b'{"id": "bad-4", "version": -1, "type": "CREATE", "updatedAt": "2025-07-03T11:42:48",'
    b' "clientId": "x", "data": {}}',
)


class CheckError(AssertionError):
    """Raised if a result is wrong. The message has the actual and the expected value."""


# The messages by kind and id, then by version.
MessagesByDocument = dict[tuple[str, str], dict[int, dict[str, Any]]]


def run_check(began: float, with_shop: bool = False) -> int:
    """Run the demo once on a small load, and return 0 if everything is right, or else 1.

    Leaves no process and no file behind.

    Args:
        began: time.monotonic() at the start of the demo.
        with_shop: Whether to start the example shop, too.
    """
    os.environ.update({**SMALL_SETTINGS, **os.environ})
    verdict, code = "All right.", 0
    with tempfile.TemporaryDirectory(prefix="annals-check-", ignore_cleanup_errors=True) as home:
        try:
            with DemoSupervisor(Path(home)) as demo:
                demo.start_servers()
                _check_load(demo)
                if with_shop:
                    [port] = process.choose_free_ports([None])
                    shop.serve_shop(demo, port, shop.prepare_shop(demo))
                    print_step("Shop", "its relay runs, its admin answers")
        except (CheckError, DemoClientError) as error:
            verdict, code = f"WRONG: {error}", 1
    print(f"{verdict} {time.monotonic() - began:.0f} s")
    return code


def _check_load(demo: DemoSupervisor) -> None:
    load = demo.start_process("simulate", ANNALS_COMMAND, "simulate", *LOAD, ends=True)
    tables = demo.make_tables()
    summary = demo.wait_for_end(load).read_answer()
    sent = _regenerate_sent_messages(summary)
    _send_bad_and_repeated(sent)
    documents: MessagesByDocument = {}
    for message in sent:
        versions = documents.setdefault((message.entity, message.key.decode()), {})
        content: Any = exactjson.loads(message.value)
        versions[message.version] = content
    print_step(
        "Produced",
        f"{len(sent):,} versions of {len(documents):,} documents, {REPEATS} repeats, "
        f"{len(BAD_MESSAGES)} bad messages",
    )
    demo.wait_for_end(tables)
    arguments = ("consume", "--until-idle", "1", "--json")
    consumer = demo.start_process(
        "consume", ANNALS_COMMAND, *arguments, login=logins.CONSUMER, ends=True
    )
    [port] = process.choose_free_ports([None])
    demo.start_web(port)
    address = f"http://{process.HOST}:{port}"
    _check_consumed(demo, consumer, len(sent))
    _check_timelines(DemoClient(address, "underwriter", "underwriter"), documents)
    showcase = summary["showcase"]
    application = f"/admin/history/product-instance/{showcase}/"
    page = DemoClient(address, "support", "support").open_screen(application)
    _require_equal("the application's screen", showcase in page and "support" in page, True)
    print_step("Screens", f"support sees {application}")


def _regenerate_sent_messages(summary: dict[str, Any]) -> list[SimulatedMessage]:
    """Generate again exactly the messages that the simulator sent.

    The seed and the start determine each byte of the messages.

    Args:
        summary: The JSON summary that the simulator printed.
    """
    messages = generate_messages(
        SEED,
        datetime.fromisoformat(summary["start"]),
        step=timedelta(seconds=summary["step"]),
        side_by_side=summary["sideBySide"],
    )
    return list(islice(messages, summary["delivered"]))


def _send_bad_and_repeated(sent: list[SimulatedMessage]) -> None:
    producer = KafkaProducer({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]})
    for message in sent[:REPEATS]:
        producer.send(message.topic, message.key, message.value)
    for number, value in enumerate(BAD_MESSAGES):
        producer.send(sent[0].topic, f"bad-{number}".encode(), value)
    producer.flush()


def _check_consumed(demo: DemoSupervisor, consumer: DemoProcess, versions: int) -> None:
    demo.wait_for_end(consumer)
    ledger = demo.run_process("ledger", ANNALS_COMMAND, "ledger", "--json", login=logins.CONSUMER)
    totals = ledger.read_answer()["totals"]
    _require_equal("read", totals["read"], versions + REPEATS + len(BAD_MESSAGES))
    _require_equal("stored", totals["stored"], versions)
    _require_equal("repeated", totals["repeated"], REPEATS)
    _require_equal("quarantined", totals["quarantined"], len(BAD_MESSAGES))
    print_step(
        "Stored",
        f"{totals['stored']:,} versions, {totals['repeated']} repeats, "
        f"{totals['quarantined']} in quarantine; the ledger adds up",
    )


def _check_timelines(client: DemoClient, expected: MessagesByDocument) -> None:
    """Read each timeline completely, and compare it with the messages of its document."""

    def compare_document(document: tuple[tuple[str, str], dict[int, dict[str, Any]]]) -> None:
        (entity, identifier), messages = document
        label = f"{entity} {identifier}"
        rows = {
            row["version"]: row for row in client.iterate_timeline(entity, identifier, PAGE_SIZE)
        }
        _require_equal(f"{label}: versions", sorted(rows), sorted(messages))
        for number, version in rows.items():
            for name in ("entity", "author", "clientId", "type"):
                expected_value = messages[number].get("data" if name == "entity" else name)
                _require_equal(f"{label} version {number}: {name}", version[name], expected_value)

    with ThreadPoolExecutor(CONCURRENT_REQUESTS) as pool:
        list(pool.map(compare_document, expected.items()))
    versions = sum(map(len, expected.values()))
    print_step("Served", f"{versions:,} versions, each as it was produced")


def _require_equal(label: str, value: Any, expected: Any) -> None:
    if value != expected:
        raise CheckError(f"{label} is {value!r}, not {expected!r}")
