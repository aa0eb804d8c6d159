"""`python -m tests.outbox --kills 25 --rounds 3`: relays killed at many moments under load, each
started again. Ends with an error if a version is missing, out of order, or came again as another
message. Runs on Apache Kafka; with --embedded on the embedded broker."""

from __future__ import annotations

import argparse

from tests.outbox.stand import stand


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.outbox", description=__doc__)
    parser.add_argument("--kills", type=int, default=25, help="relays killed in each round")
    parser.add_argument("--rounds", type=int, default=1, help="how often, each with its own seed")
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--embedded", action="store_true", help="on the embedded broker")
    options = parser.parse_args()
    with stand(embedded=options.embedded) as place:
        from django.db import connection

        from tests.kafka import brokers
        from tests.outbox.load import kills
        from tests.outbox.relays import TOPIC

        for seed in range(options.seed, options.seed + options.rounds):
            brokers.clear(place.broker)
            brokers.create(place.broker, [TOPIC])
            report = kills(
                place.broker, place.database, place.home / "log", times=options.kills, seed=seed
            )
            with connection.cursor() as cursor:
                cursor.execute("TRUNCATE outbox_document, outbox_message")
            print(
                f"seed {seed}: {options.kills} kills, {report.versions} versions, all in order;"
                f" {report.repeats} came again with the same key;"
                f" slowest take-over {report.slowest_take_over:.1f} s"
            )


if __name__ == "__main__":
    main()
