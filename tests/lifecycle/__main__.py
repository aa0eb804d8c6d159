"""`python -m tests.lifecycle --minutes 10 --seed 1`: the state machine with a large budget.

Ends with 1 at the first failure, with the smallest series of steps that leads to it.
"""

from __future__ import annotations

import argparse
import sys
import time

import tests.postgres  # noqa: F401 - starts the server before Django reads its settings


def main() -> int:
    import django

    django.setup()
    from tests.lifecycle import machine
    from tests.lifecycle.run import run
    from tests.lifecycle.stand import prepared

    parser = argparse.ArgumentParser(prog="python -m tests.lifecycle", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="how long to look for failures")
    parser.add_argument("--seed", type=int, default=1, help="of the first series of examples")
    parser.add_argument("--steps", type=int, default=60, help="steps of each example")
    options = parser.parse_args()
    until, seed = time.monotonic() + options.minutes * 60, options.seed
    with prepared():
        while time.monotonic() < until:
            print(f"seed {seed}: ", end="", flush=True)
            try:
                run(seed, examples=25, steps=options.steps)
            except Exception as error:
                print(f"found after {machine.record.found_after}:")
                print(error, *getattr(error, "__notes__", ()), sep="\n")
                return 1
            finally:
                print(machine.record, flush=True)
            seed += 1
    print("nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
