"""`python -m ingest.simulator [APPLICATIONS [SEED]]`: the distribution and the rate, no broker."""

import sys
from datetime import UTC, datetime
from time import process_time

from history.table import width
from ingest.simulator.report import report
from ingest.simulator.stream import stream
from ingest.simulator.tally import Tally


def main(applications: int = 4_400, seed: int = 1) -> None:
    began = process_time()
    messages = list(stream(seed, datetime.now(UTC), applications=applications))
    took = process_time() - began
    tally = Tally()
    for message in messages:
        tally.add(message)
    print(report(tally, width()))
    print(f"{len(messages):,} messages made in {took:.1f} CPU seconds")
    print(f"{len(messages) / took:,.0f} a second")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
