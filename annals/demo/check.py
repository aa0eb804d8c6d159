"""`scripts/demo --check`: runs everything once on a small load and verifies the result."""

import os
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from annals.demo import shop
from annals.demo.client import Client, ClientError
from annals.demo.supervisor import MANAGE, ChildProcess, Supervisor, print_step
from annals.embedded import logins, process
from history.documents import exactjson
from history.entities import BY_TOPIC, ENTITIES
from ingest.source import kafka
from ingest.source.producer import Producer

# Few partitions, of which the load fills most, and a short wait for the consumer's.
SMALL = {
    "ANNALS_RETENTION_DAYS": "22",
    "ANNALS_AHEAD_DAYS": "2",
    "ANNALS_KAFKA_SESSION_TIMEOUT_MS": "2000",
}
LOAD = ("--messages", "1000", "--days", "20", "--seed", "7", "--json")
REPEATS = 25
PAGE_SIZE = 7  # small, so that most timelines have several pages
TOGETHER = 4  # requests
PARTITIONS = 3
# Until no message follows: the embedded broker reports an end offset before the last batch.
ALL = 10**9
SHORT_WAIT = {"fetch.wait.max.ms": "10"}

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


@dataclass(frozen=True)
class Produced:
    """messages: their number. documents: by entity and id, then by version, the message."""

    messages: int = 0
    bad: int = 0
    repeated: int = 0
    documents: dict[tuple[str, str], dict[int, dict[str, Any]]] = field(default_factory=dict)

    @property
    def versions(self) -> int:
        return sum(map(len, self.documents.values()))


def run(began: float, with_shop: bool = False) -> int:
    """Exit code: 0 if everything is right. Leaves no process and no file behind. with_shop: start
    the example shop, too. began: time.monotonic() at the start of the demo."""
    home = Path(tempfile.mkdtemp(prefix="annals-check-"))
    problem: Exception | None = None
    os.environ.update({**SMALL, **os.environ})
    try:
        with Supervisor(home) as demo:
            try:
                demo.servers()
                _check(demo)
                if with_shop:
                    _shop(demo)
            except (CheckError, ClientError) as error:
                problem = error
    finally:
        shutil.rmtree(home, ignore_errors=True)
    print(f"{f'WRONG: {problem}' if problem else 'All right.'} {time.monotonic() - began:.0f} s")
    return 1 if problem else 0


def _check(demo: Supervisor) -> None:
    load = demo.start("simulate", MANAGE, "simulate", *LOAD, ends=True)
    tables = demo.make_tables()
    showcase = demo.finish(load).answer()["showcase"]
    _add_bad_and_repeated()
    expected = _read()
    print_step(
        "Produced",
        f"{expected.messages:,} messages: {expected.versions:,} versions of "
        f"{len(expected.documents):,} documents, {expected.repeated} repeats, {expected.bad} bad",
    )
    demo.finish(tables)
    words = ("consume", "--until-idle", "1", "--json")
    consumer = demo.start("consume", MANAGE, *words, login=logins.CONSUMER, ends=True)
    [port] = process.free_ports([None])
    demo.web(port)
    address = f"http://{process.HOST}:{port}"
    _consumed(demo, consumer, expected)
    _served(Client(address, "underwriter", "underwriter"), expected)
    application = f"/admin/history/product-instance/{showcase}/"
    page = Client(address, "support", "support").screen(application)
    _same("the application's screen", showcase in page and "support" in page, True)
    print_step("Screens", f"support sees {application}")


def _add_bad_and_repeated() -> None:
    """Produce the bad messages, and repeat the first messages of a topic."""
    servers = os.environ["KAFKA_BOOTSTRAP_SERVERS"]
    producer = Producer({"bootstrap.servers": servers})
    topic = ENTITIES[0].topics[0]
    for message in kafka.peek(servers, SHORT_WAIT, (topic, 0), 0, REPEATS):
        producer.send(topic, message.key or b"", message.value or b"")
    for number, value in enumerate(BAD):
        producer.send(topic, f"bad-{number}".encode(), value)
    producer.flush()


def _read() -> Produced:
    """Everything on all topics."""
    servers = os.environ["KAFKA_BOOTSTRAP_SERVERS"]
    places = [(topic, n) for topic in BY_TOPIC for n in range(PARTITIONS)]
    messages = bad = repeated = 0
    documents: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for place in places:
        for message in kafka.peek(servers, SHORT_WAIT, place, 0, ALL):
            messages += 1
            if message.value in BAD:
                bad += 1
                continue
            content: Any = exactjson.loads(message.value or b"")
            versions = documents.setdefault((BY_TOPIC[place[0]].name, content["id"]), {})
            repeated += content["version"] in versions
            versions[content["version"]] = content
    return Produced(messages, bad, repeated, documents)


def _shop(demo: Supervisor) -> None:
    """The example shop starts next to Annals."""
    [port] = process.free_ports([None])
    shop.serve(demo, port, shop.prepare(demo))
    print_step("Shop", "its relay runs, its admin answers")


def _consumed(demo: Supervisor, consumer: ChildProcess, expected: Produced) -> None:
    demo.finish(consumer)
    ledger = demo.run("ledger", MANAGE, "ledger", "--json", login=logins.CONSUMER)
    totals = ledger.answer()["totals"]
    _same("read", totals["read"], expected.messages)
    _same("stored", totals["stored"], expected.versions)
    _same("repeated", totals["repeated"], expected.repeated)
    _same("quarantined", totals["quarantined"], expected.bad)
    print_step(
        "Stored",
        f"{totals['stored']:,} versions, {totals['repeated']} repeats, "
        f"{totals['quarantined']} in quarantine; the ledger adds up",
    )


def _served(client: Client, expected: Produced) -> None:
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
        list(pool.map(compare, expected.documents.items()))
    print_step("Served", f"{expected.versions:,} versions, each as it was produced")


def _same(what: str, found: Any, wanted: Any) -> None:
    if found != wanted:
        raise CheckError(f"{what} is {found!r}, not {wanted!r}")
