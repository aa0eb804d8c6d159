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
from annals.demo.client import Client, ClientError
from annals.demo.simulator import Message, stream
from annals.demo.supervisor import MANAGE, ChildProcess, Supervisor, print_step
from annals.embedded import logins, process
from history.documents import exactjson
from ingest.source.producer import KafkaProducer

# Few partitions, of which the load fills most, and a short wait for the consumer's.
SMALL = {
    "ANNALS_RETENTION_DAYS": "22",
    "ANNALS_AHEAD_DAYS": "2",
    "ANNALS_KAFKA_SESSION_TIMEOUT_MS": "2000",
}
SEED = 7
LOAD = ("--messages", "1000", "--days", "20", "--seed", str(SEED), "--json")
REPEATS = 25
PAGE_SIZE = 7  # small, so that most timelines have several pages
TOGETHER = 4  # requests

# One message for each kind of error: the text, a type, a time, a missing field, a wrong value.
BAD = (
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
    """A result is wrong; the text says which."""


# By entity and id, then by version: the message.
Documents = dict[tuple[str, str], dict[int, dict[str, Any]]]


def run(began: float, with_shop: bool = False) -> int:
    """Exit code: 0 if everything is right. Leaves no process and no file behind. with_shop: start
    the example shop, too. began: time.monotonic() at the start of the demo."""
    os.environ.update({**SMALL, **os.environ})
    said, code = "All right.", 0
    with tempfile.TemporaryDirectory(prefix="annals-check-", ignore_cleanup_errors=True) as home:
        try:
            with Supervisor(Path(home)) as demo:
                demo.servers()
                _check(demo)
                if with_shop:
                    [port] = process.free_ports([None])
                    shop.serve(demo, port, shop.prepare(demo))
                    print_step("Shop", "its relay runs, its admin answers")
        except (CheckError, ClientError) as error:
            said, code = f"WRONG: {error}", 1
    print(f"{said} {time.monotonic() - began:.0f} s")
    return code


def _check(demo: Supervisor) -> None:
    load = demo.start("simulate", MANAGE, "simulate", *LOAD, ends=True)
    tables = demo.make_tables()
    summary = demo.finish(load).answer()
    sent = _sent(summary)
    _send_bad_and_repeated(sent)
    documents: Documents = {}
    for message in sent:
        versions = documents.setdefault((message.entity, message.key.decode()), {})
        content: Any = exactjson.loads(message.value)
        versions[message.version] = content
    print_step(
        "Produced",
        f"{len(sent):,} versions of {len(documents):,} documents, {REPEATS} repeats, "
        f"{len(BAD)} bad messages",
    )
    demo.finish(tables)
    words = ("consume", "--until-idle", "1", "--json")
    consumer = demo.start("consume", MANAGE, *words, login=logins.CONSUMER, ends=True)
    [port] = process.free_ports([None])
    demo.web(port)
    address = f"http://{process.HOST}:{port}"
    _consumed(demo, consumer, len(sent))
    _served(Client(address, "underwriter", "underwriter"), documents)
    showcase = summary["showcase"]
    application = f"/admin/history/product-instance/{showcase}/"
    page = Client(address, "support", "support").screen(application)
    _same("the application's screen", showcase in page and "support" in page, True)
    print_step("Screens", f"support sees {application}")


def _sent(summary: dict[str, Any]) -> list[Message]:
    """What the simulator has sent: the same seed and start give the same bytes."""
    messages = stream(
        SEED,
        datetime.fromisoformat(summary["start"]),
        step=timedelta(seconds=summary["step"]),
        side_by_side=summary["sideBySide"],
    )
    return list(islice(messages, summary["delivered"]))


def _send_bad_and_repeated(sent: list[Message]) -> None:
    producer = KafkaProducer({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]})
    for message in sent[:REPEATS]:
        producer.send(message.topic, message.key, message.value)
    for number, value in enumerate(BAD):
        producer.send(sent[0].topic, f"bad-{number}".encode(), value)
    producer.flush()


def _consumed(demo: Supervisor, consumer: ChildProcess, versions: int) -> None:
    demo.finish(consumer)
    ledger = demo.run("ledger", MANAGE, "ledger", "--json", login=logins.CONSUMER)
    totals = ledger.answer()["totals"]
    _same("read", totals["read"], versions + REPEATS + len(BAD))
    _same("stored", totals["stored"], versions)
    _same("repeated", totals["repeated"], REPEATS)
    _same("quarantined", totals["quarantined"], len(BAD))
    print_step(
        "Stored",
        f"{totals['stored']:,} versions, {totals['repeated']} repeats, "
        f"{totals['quarantined']} in quarantine; the ledger adds up",
    )


def _served(client: Client, expected: Documents) -> None:
    """Read every timeline whole, and compare it with what was produced."""

    def compare(document: tuple[tuple[str, str], dict[int, dict[str, Any]]]) -> None:
        (entity, identifier), messages = document
        where = f"{entity} {identifier}"
        shown = {each["version"]: each for each in client.timeline(entity, identifier, PAGE_SIZE)}
        _same(f"{where}: versions", sorted(shown), sorted(messages))
        for number, version in shown.items():
            for name in ("entity", "author", "clientId", "type"):
                said = messages[number].get("data" if name == "entity" else name)
                _same(f"{where} version {number}: {name}", version[name], said)

    with ThreadPoolExecutor(TOGETHER) as pool:
        list(pool.map(compare, expected.items()))
    versions = sum(map(len, expected.values()))
    print_step("Served", f"{versions:,} versions, each as it was produced")


def _same(what: str, found: Any, wanted: Any) -> None:
    if found != wanted:
        raise CheckError(f"{what} is {found!r}, not {wanted!r}")
