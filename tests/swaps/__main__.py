"""`python -m tests.swaps --swaps 200`: packs and unpacks days while threads read and write them.

Prints what was done. Ends with 1 if an answer was wrong.
"""

import argparse
import sys
import time

import tests.postgres  # noqa: F401 - starts the server before Django reads its settings


def main() -> int:
    import django

    django.setup()
    from django.conf import settings
    from django.core.management import call_command

    from benchmarks.harness import create_database, use_database
    from ingest.store.session import open_connection
    from ingest.store.transaction import BatchWriter
    from tests.db.ingested import Ingested, claim_all
    from tests.swaps.stress import SwapStress

    parser = argparse.ArgumentParser(prog="python -m tests.swaps", description=__doc__)
    parser.add_argument(
        "--swaps", type=int, default=200, help="how often each of two days is swapped"
    )
    options = parser.parse_args()
    settings.DEBUG = False
    with create_database("annals_swaps") as conninfo:
        use_database(conninfo)
        call_command("migrate", "--verbosity=0")
        stress = SwapStress(Ingested(BatchWriter(open_connection), claim_all()))
        began = time.monotonic()
        stress.run(options.swaps)
        stress.ingested.writer.close()
        counts = ", ".join(f"{count:,} {name}" for name, count in stress.act_counts.most_common())
        print(f"{counts}; {time.monotonic() - began:.0f} s")
    print(*stress.wrong or ["no wrong answer"], sep="\n")
    return 1 if stress.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
