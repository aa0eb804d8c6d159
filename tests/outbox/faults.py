"""`python -m tests.outbox.faults --kills 25`: faults on the whole way, from a service that records
to Annals' tables, on Apache Kafka. After each fault every version is in Annals exactly once, in the
topic in order of its document, and the sums of both sides are equal; otherwise it ends with an
error. `--only relays frozen` makes some of them.

relays: relays killed at many moments. frozen: a relay frozen until another has its documents, and
woken. broker: Kafka stopped and started. database: the server stopped and started. both: one soon
after the other. hole: messages deleted from the topic before Annals reads them; `gaps heal` gets
them back. inbox: its consumers killed under load, with messages that come twice, kill their
process, raise and hang."""

from __future__ import annotations

import argparse
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from tests.outbox.fault_stand import FaultStand, run_stand

if TYPE_CHECKING:
    from tests.outbox.load import WriteLoad


@dataclass(slots=True)
class FaultRunner:
    """The faults, one method for each."""

    place: FaultStand
    kills: int
    random: random.Random = field(default_factory=lambda: random.Random(1))

    def relays(self, load: WriteLoad) -> str:
        """Two relays, killed in turns."""
        for _ in range(self.kills):
            time.sleep(self.random.uniform(0.0, 0.5))
            number = self.random.randrange(2)
            self.place.relays[number].kill()
            self.place.relays[number].wait()
            load.wait_until_sent()
            self.place.relays[number] = self.place.start_relay()
        return f"{self.kills} relays killed"

    def database(self, load: WriteLoad) -> str:
        """For writers, relays and Annals at the same time; every second time as by a crash."""
        for number in range(6):
            self._record_more(load, 50)
            time.sleep(self.random.uniform(0.0, 0.3))
            mode = "immediate" if number % 2 else "fast"
            self.place.restart_database(mode, self.random.uniform(0.0, 2.0))  # type: ignore[arg-type]
            load.wait_until_sent()
        return "PostgreSQL stopped and started 6 times"

    def broker(self, load: WriteLoad) -> str:
        """Stopped, and killed."""
        for number in range(4):
            self._record_more(load, 50)
            if number % 2:
                self.place.broker.kill()
            else:
                self.place.broker.stop(timeout=120)
            self._record_more(load, 100)
            time.sleep(self.random.uniform(0.0, 3.0))
            self.place.broker.start(timeout=180)
            load.wait_until_sent()
        return "Apache Kafka stopped and started 4 times"

    def both(self, load: WriteLoad) -> str:
        """PostgreSQL crashes, and while it recovers Kafka is killed."""
        for _ in range(4):
            self._record_more(load, 50)
            self.place.restart_database("immediate", 0.0)
            time.sleep(self.random.uniform(0.0, 5.0))
            self.place.broker.kill()
            time.sleep(self.random.uniform(5.0, 30.0))
            self.place.broker.start(timeout=180)
            load.wait_until_sent()
        return "PostgreSQL and soon after Kafka killed and started 4 times"

    def frozen(self, load: WriteLoad) -> str:
        """A relay that wakes when another has its documents."""
        from tests.outbox import relays

        for number in range(5):
            relays.wait_until(lambda: relays.list_shares() == [32, 32], 120)
            self._record_more(load, 100)
            time.sleep(self.random.uniform(0.0, 0.2))
            relay = self.place.relays[number % 2]
            relay.send_signal(signal.SIGSTOP)
            relays.wait_until(lambda: relays.list_shares() == [64], 120)
            time.sleep(self.random.uniform(0.0, 0.5))
            relay.send_signal(signal.SIGCONT)
            self._record_more(load, 50)
        return "5 relays frozen until others had their documents"

    def kill_inbox_consumers(self) -> str:
        """Each message has its effect once, in order of its key."""
        from tests.kafka import brokers
        from tests.outbox import consumers, events
        from tests.outbox.shop.inbox import EVENTS

        place = self.place
        brokers.create_topics(place.broker, [EVENTS])
        load = events.EventSender(events.make_topic_delivery(place.broker), seed=1)
        start = partial(
            consumers.start_consumer,
            place.broker.make_client_config(),
            place.shop,
            place.log,
            SECONDS=1,
        )
        report = events.kill_consumers_under_load(load, start, self.kills)
        return (
            f"{self.kills} consumers killed: {report.events} effects, each once and in order;"
            f" {report.repeats} messages came twice; {report.dead} dead letters, {report.behind}"
            " messages behind them"
        )

    def _record_more(self, load: WriteLoad, count: int) -> None:
        from tests.outbox import relays

        target = load.recorded + count
        relays.wait_until(lambda: load.recorded >= target, 120)


def compare_with_annals(place: FaultStand, missing: int = 0) -> str:
    """Everything recorded is in the topic, in order, and in Annals, once. missing: messages that
    were deleted before Annals read them."""
    from django.db import connection

    from outbox.models import Document
    from tests.outbox import relays

    # The server may have been stopped since.
    connection.close()
    relays.wait_until(lambda: not relays.count_waiting(), 120)
    documents = dict(Document.objects.values_list("key", "version"))
    newest = {key.partition("/")[2]: number for key, number in documents.items()}
    messages = sum(place.fetch_ends().values())
    stuck = _wait_for_annals(place, messages - missing)
    if not missing:
        repeats = relays.check_sent(relays.read_sent(place.broker), newest)
        assert messages - repeats == sum(newest.values())
    stored_versions: dict[str, list[int]] = {}
    for _, id, version, _ in sorted(place.database.count_stored()):
        stored_versions.setdefault(id, []).append(version)
    wrong = [id for id in newest if stored_versions.get(id) != list(range(1, newest[id] + 1))]
    assert not wrong, [(id, newest[id], stored_versions.get(id)) for id in wrong[:3]]
    assert set(stored_versions) == set(newest)
    ledger = place.consumers.read_ledger()
    totals = ledger["totals"]
    if not missing:
        assert ledger["ok"], ledger["faults"]
        assert totals["stored"] == sum(newest.values())
        assert totals["stored"] + totals["repeated"] == messages == totals["read"]
    return (
        f"{sum(newest.values()):,} versions recorded, "
        f"{sum(map(len, stored_versions.values())):,} in Annals;"
        f" {messages:,} messages = {totals['stored']:,} stored + {totals['repeated']:,} repeated"
        + (f" + {missing:,} deleted" if missing else "")
        + stuck
    )


def _wait_for_annals(place: FaultStand, messages: int) -> str:
    """Until Annals has read so many. What to say if its consumer did not go on by itself."""
    from tests.outbox import relays

    try:
        relays.wait_until(lambda: place.database.count_read() >= messages, 120)
    except AssertionError:
        place.consumers.all[-1].kill_process()
        place.consumers.start_consumer()
        relays.wait_until(lambda: place.database.count_read() >= messages, 120)
        return "; ANNALS' CONSUMER HAD STOPPED READING, and was started again"
    return ""


NAMES = ("inbox", "relays", "frozen", "broker", "database", "both", "hole")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.outbox.faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kills", type=int, default=25, help="relays and consumers killed")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, help="these faults")
    options = parser.parse_args()
    with run_stand() as place:
        from tests.outbox import deleted_messages
        from tests.outbox.load import WriteLoad

        faults = FaultRunner(place, options.kills)
        # The hole comes last: what Annals has missed stays in its ledger.
        for seed, name in enumerate(sorted(options.only, key=NAMES.index), 1):
            began = time.monotonic()
            if name == "hole":
                result = deleted_messages.make_and_heal_hole(place)
            elif name == "inbox":
                result = faults.kill_inbox_consumers()
            else:
                fault: Callable[[WriteLoad], str] = getattr(faults, name)
                load = WriteLoad(documents=100, seed=seed, patient=True)
                with load.run_writers():
                    description = fault(load)
                result = f"{description}: {compare_with_annals(place)}"
            print(f"{name}: {result} ({time.monotonic() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
