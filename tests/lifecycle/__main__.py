"""`python -m tests.lifecycle --minutes 10 --seed 1`: a long run of the lifecycle state machine.

At the first failure the program prints the shortest series of steps that leads to the failure, and
ends with exit code 1.

`--defect NAME` brings a defect of tests/lifecycle/defects.py back into Annals, and runs three
searches. A search ends when the state machine finds the defect, or after `--minutes`. The exit code
is 1 if at least one search did not find the defect.
"""

import argparse
import sys
import time

import tests.postgres  # noqa: F401 - starts the server before Django reads its settings

SEARCHES = 3


def main() -> int:
    import django

    django.setup()
    from tests.lifecycle.defects import DEFECTS
    from tests.lifecycle.stand import prepare_template

    parser = argparse.ArgumentParser(
        prog="python -m tests.lifecycle",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--minutes", type=float, default=10, help="how long each search takes at most"
    )
    parser.add_argument("--seed", type=int, default=1, help="the seed of the first search")
    parser.add_argument("--steps", type=int, default=60, help="steps of each example")
    parser.add_argument("--defect", choices=[*DEFECTS, "all"], help="put this defect back")
    options = parser.parse_args()
    names = list(DEFECTS) if options.defect == "all" else [options.defect]
    with prepare_template():
        if options.defect is None:
            return _search(options.seed, options.minutes, options.steps)
        results = [
            _find_defect(name, options.seed + number, options.minutes, options.steps)
            for name in names
            for number in range(SEARCHES)
        ]
    return 0 if all(results) else 1


def _search(seed: int, minutes: float, steps: int) -> int:
    """Look for failures, and return the exit code."""
    from tests.lifecycle import machine
    from tests.lifecycle.run import run

    until = time.monotonic() + minutes * 60
    while time.monotonic() < until:
        print(f"seed {seed}: ", end="", flush=True)
        try:
            run(seed, examples=25, steps=steps)
        except Exception as error:
            print(f"found after {machine.record.found_after}:")
            print(error, *getattr(error, "__notes__", ()), sep="\n")
            return 1
        finally:
            print(machine.record, flush=True)
        seed += 1
    print("nothing found")
    return 0


def _find_defect(name: str, seed: int, minutes: float, steps: int) -> bool:
    """Return whether the state machine finds the defect `name` within `minutes`."""
    from tests.lifecycle import machine
    from tests.lifecycle.defects import DEFECTS, put_back
    from tests.lifecycle.record import RunCounts
    from tests.lifecycle.run import run

    print(f"defect {name}, {DEFECTS[name][0]}, seed {seed}: ", end="", flush=True)
    record = machine.record = RunCounts()
    with put_back(name):
        for number in range(sys.maxsize):
            if record.seconds > minutes * 60:
                break
            try:
                run(seed + number * SEARCHES, examples=25, steps=steps, shrink=False)
            except Exception as error:
                cause = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
                problem = f"{type(cause).__name__}: {cause}".splitlines()[0]
                print(f"found after {record.found_after}: {problem}", flush=True)
                return True
    print(f"not found: {record}", flush=True)
    return False


if __name__ == "__main__":
    sys.exit(main())
