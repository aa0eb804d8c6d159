"""`python -m tests.outbox.faults --kills 25`: faults between a recording service and Annals.

A service records versions in its outbox, relays send them to Apache Kafka, and Annals stores them.
After each fault every version must be in Annals exactly once, the topic must have the versions of
each document in order, and the counts of both sides must be equal. `--only relays frozen` makes
only the faults `relays` and `frozen`. All faults:

relays: relays are killed at many moments.
frozen: a relay is frozen until a second relay has taken over its documents, and then wakes.
broker: Kafka is stopped and started.
database: PostgreSQL is stopped and started.
both: PostgreSQL is stopped, and soon afterwards Kafka.
hole: Kafka deletes messages before Annals reads them, and `gaps heal` gets them back.
inbox: consumers of the inbox are killed under load. Some messages come twice, kill the consumer,
    raise an error or hang.
"""

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
    """Makes the faults. Each public method makes one kind of fault, and returns a report text."""

    stand: FaultStand
    kills: int
    random: random.Random = field(default_factory=lambda: random.Random(1))

    def relays(self, load: WriteLoad) -> str:
        """Kill one of two relays again and again."""
        for _ in range(self.kills):
            time.sleep(self.random.uniform(0.0, 0.5))
            number = self.random.randrange(2)
            self.stand.relays[number].kill()
            self.stand.relays[number].wait()
            load.wait_until_sent()
            self.stand.relays[number] = self.stand.start_relay()
        return f"{self.kills} relays killed"

    def database(self, load: WriteLoad) -> str:
        """Stop and start PostgreSQL six times. Every second stop is a crash. Return a report.

        The service and Annals have their databases on this PostgreSQL server.
        """
        for number in range(6):
            self._record_more(load, 50)
            time.sleep(self.random.uniform(0.0, 0.3))
            mode = "immediate" if number % 2 else "fast"
            self.stand.restart_database(mode, self.random.uniform(0.0, 2.0))  # type: ignore[arg-type]
            load.wait_until_sent()
        return "PostgreSQL stopped and started 6 times"

    def broker(self, load: WriteLoad) -> str:
        """Stop and start Kafka four times. Every second stop is a kill. Return a report."""
        for number in range(4):
            self._record_more(load, 50)
            if number % 2:
                self.stand.broker.kill()
            else:
                self.stand.broker.stop(timeout=120)
            self._record_more(load, 100)
            time.sleep(self.random.uniform(0.0, 3.0))
            self.stand.broker.start(timeout=180)
            load.wait_until_sent()
        return "Apache Kafka stopped and started 4 times"

    def both(self, load: WriteLoad) -> str:
        """Let PostgreSQL crash, and kill Kafka while PostgreSQL recovers."""
        for _ in range(4):
            self._record_more(load, 50)
            self.stand.restart_database("immediate", 0.0)
            time.sleep(self.random.uniform(0.0, 5.0))
            self.stand.broker.kill()
            time.sleep(self.random.uniform(5.0, 30.0))
            self.stand.broker.start(timeout=180)
            load.wait_until_sent()
        return "PostgreSQL and soon after Kafka killed and started 4 times"

    def frozen(self, load: WriteLoad) -> str:
        """Freeze one of two relays, and wake this relay after the second relay has taken over."""
        from tests.outbox import relays

        for number in range(5):
            relays.wait_until(lambda: relays.list_shares() == [32, 32], 120)
            self._record_more(load, 100)
            time.sleep(self.random.uniform(0.0, 0.2))
            relay = self.stand.relays[number % 2]
            relay.send_signal(signal.SIGSTOP)
            relays.wait_until(lambda: relays.list_shares() == [64], 120)
            time.sleep(self.random.uniform(0.0, 0.5))
            relay.send_signal(signal.SIGCONT)
            self._record_more(load, 50)
        return "5 relays frozen until others had their documents"

    def kill_inbox_consumers(self) -> str:
        """Kill consumers of the inbox, and return a sentence with the counts of messages.

        Assert that each message is processed once, and that the messages of a key are processed in
        order.
        """
        from tests.kafka import brokers
        from tests.outbox import consumers, events
        from tests.outbox.shop.inbox import EVENTS

        stand = self.stand
        brokers.create_topics(stand.broker, [EVENTS])
        load = events.EventSender(events.make_topic_delivery(stand.broker), seed=1)
        start = partial(
            consumers.start_consumer,
            stand.broker.make_client_config(),
            stand.shop,
            stand.log,
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


def compare_with_annals(stand: FaultStand, missing: int = 0) -> str:
    """Assert that all recorded versions are in the topic in order, and in Annals exactly once.

    Args:
        missing: How many messages Kafka has deleted before Annals read them.
    """
    from django.db import connection

    from outbox.models import Document
    from tests.outbox import relays

    # The server may have been restarted since this connection was opened.
    connection.close()
    relays.wait_until(lambda: not relays.count_waiting(), 120)
    documents = dict(Document.objects.values_list("key", "version"))
    newest = {key.partition("/")[2]: number for key, number in documents.items()}
    messages = sum(stand.fetch_ends().values())
    stuck = _wait_for_annals(stand, messages - missing)
    if not missing:
        repeats = relays.check_sent(relays.read_sent(stand.broker), newest)
        assert messages - repeats == sum(newest.values())
    stored_versions: dict[str, list[int]] = {}
    for _, id, version, _ in sorted(stand.database.count_stored()):
        stored_versions.setdefault(id, []).append(version)
    wrong = [id for id in newest if stored_versions.get(id) != list(range(1, newest[id] + 1))]
    assert not wrong, [(id, newest[id], stored_versions.get(id)) for id in wrong[:3]]
    assert set(stored_versions) == set(newest)
    ledger = stand.consumers.read_ledger()
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


def _wait_for_annals(stand: FaultStand, messages: int) -> str:
    """Wait until Annals has read at least as many messages as `messages` says.

    If the consumer of Annals does not continue by itself, start a new consumer.

    Returns:
        A text for the report if a new consumer was started, or else an empty text.
    """
    from tests.outbox import relays

    try:
        relays.wait_until(lambda: stand.database.count_read() >= messages, 120)
    except AssertionError:
        stand.consumers.all[-1].kill_process()
        stand.consumers.start_consumer()
        relays.wait_until(lambda: stand.database.count_read() >= messages, 120)
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
    with run_stand() as stand:
        from tests.outbox import deleted_messages
        from tests.outbox.load import WriteLoad

        faults = FaultRunner(stand, options.kills)
        # The fault `hole` comes last, because the ledger of Annals keeps the lost messages.
        for seed, name in enumerate(sorted(options.only, key=NAMES.index), 1):
            began = time.monotonic()
            if name == "hole":
                result = deleted_messages.make_and_heal_hole(stand)
            elif name == "inbox":
                result = faults.kill_inbox_consumers()
            else:
                fault: Callable[[WriteLoad], str] = getattr(faults, name)
                load = WriteLoad(documents=100, seed=seed, patient=True)
                with load.run_writers():
                    description = fault(load)
                result = f"{description}: {compare_with_annals(stand)}"
            print(f"{name}: {result} ({time.monotonic() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
