"""`python -m tests.outbox.inbox_kills --kills 25`: consumers of the inbox killed at many moments
under load, with messages that come twice, that kill their process, raise and hang. Ends with an
error if a message had no effect, two effects, or one out of order. Runs on Apache Kafka; with
--embedded on the embedded broker.

`--rate 20000` instead: how many messages per second one consumer processes, with a handler that
writes a row."""

from __future__ import annotations

import argparse
import time
from functools import partial

from tests.outbox.stand import stand


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.outbox.inbox_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=25, help="consumers killed in each round")
    parser.add_argument("--rounds", type=int, default=1, help="how often, each with its own seed")
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--rate", type=int, default=0, help="messages to process, without kills")
    parser.add_argument("--embedded", action="store_true", help="on the embedded broker")
    options = parser.parse_args()
    with stand(embedded=options.embedded) as place:
        from django.db import connection

        from tests.kafka import brokers
        from tests.outbox import consumers, events, processes, relays
        from tests.outbox.shop.inbox import EVENTS
        from tests.outbox.shop.models import Effect

        log = place.home / "log"
        start = partial(consumers.start, place.broker.client(), place.database, log, SECONDS=1)
        if options.rate:
            brokers.create(place.broker, [EVENTS])
            load = events.Events(events.to_topic(place.broker), options.seed)
            load.send(options.rate)
            with processes.kept([start()]):
                relays.until(lambda: Effect.objects.count() > 100)
                began, first = time.monotonic(), Effect.objects.count()
                while (last := Effect.objects.count()) < options.rate:
                    time.sleep(0.5)
                took = time.monotonic() - began
            print(f"one consumer: {(last - first) / took:,.0f} messages/s")
            return
        for seed in range(options.seed, options.seed + options.rounds):
            brokers.clear(place.broker)
            brokers.create(place.broker, [EVENTS])
            load = events.Events(events.to_topic(place.broker), seed)
            report = events.kills(load, start, options.kills)
            with connection.cursor() as cursor:
                cursor.execute("TRUNCATE inbox_message, inbox_done, inbox_tally, shop_effect")
            print(
                f"seed {seed}: {options.kills} kills, {report.events} effects, each once and in"
                f" order; {report.repeats} messages came twice; {report.dead} dead letters,"
                f" {report.behind} messages behind them"
            )


if __name__ == "__main__":
    main()
