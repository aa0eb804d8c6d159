"""`python -m tests.outbox --kills 25 --rounds 3`: relays killed at many moments under load, each
started again. Ends with an error if a version is missing, out of order, or came again as another
message. Runs on Apache Kafka; with --embedded on the embedded broker.

`python -m tests.outbox --writers 20 --documents 1000 --rounds 0`: threads that record a version of
each document. Ends with an error if a number is missing or was given twice."""

from __future__ import annotations

import argparse
import time

from tests.outbox.stand import stand


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.outbox", description=__doc__)
    parser.add_argument("--kills", type=int, default=25, help="relays killed in each round")
    parser.add_argument("--rounds", type=int, default=1, help="how often, each with its own seed")
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--writers", type=int, default=0, help="threads that record")
    parser.add_argument("--documents", type=int, default=1_000, help="that they record")
    parser.add_argument("--embedded", action="store_true", help="on the embedded broker")
    options = parser.parse_args()
    with stand(embedded=options.embedded) as place:
        from tests.kafka import brokers
        from tests.outbox.load import contend, kills
        from tests.outbox.relays import TOPIC

        if options.writers:
            began = time.monotonic()
            found = contend(options.writers, options.documents)
            took = time.monotonic() - began
            assert len(found) == options.documents
            expected = list(range(1, options.writers + 1))
            wrong = [document for document, numbers in found.items() if numbers != expected]
            assert not wrong, wrong
            count = options.writers * options.documents
            print(f"{count} versions by {options.writers} threads, no gap, no twin, {took:.1f} s")
            _empty()
        for seed in range(options.seed, options.seed + options.rounds):
            brokers.clear(place.broker)
            brokers.create(place.broker, [TOPIC])
            report = kills(
                place.broker, place.database, place.home / "log", times=options.kills, seed=seed
            )
            _empty()
            print(
                f"seed {seed}: {options.kills} kills, {report.versions} versions, all in order;"
                f" {report.repeats} came again with the same key;"
                f" slowest take-over {report.slowest_take_over:.1f} s"
            )


def _empty() -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE outbox_document, outbox_message")


if __name__ == "__main__":
    main()
