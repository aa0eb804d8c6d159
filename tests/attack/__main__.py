"""`python -m tests.attack [NAME...]`: attacks the real web server; ends with 1 if one succeeds.

Each line says what was measured, the figure and its limit. `--fast` is what the tests run.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import Protocol

from tests.attack import expensive_questions, giant_documents, odd_requests, slow_clients
from tests.attack.web import Figure, Site, site


class Attack(Protocol):
    """fast: a smaller attack, of some seconds."""

    def __call__(self, site: Site, *, fast: bool) -> Iterator[Figure]: ...


ATTACKS: dict[str, Attack] = {
    "half-open": slow_clients.half_open,
    "slow-loris": slow_clients.slow_loris,
    "slow-reader": slow_clients.slow_reader,
    "expensive-questions": expensive_questions.repeated,
    "colleague": expensive_questions.colleague,
    "deadline": expensive_questions.deadline,
    "odd-requests": odd_requests.odd_requests,
    "forged-logs": odd_requests.forged_logs,
    "giant-documents": giant_documents.run,
}


def main(given: list[str], say: Callable[[str], None] = print) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ATTACKS)}")
    parser.add_argument("--fast", action="store_true", help="smaller attacks, of some seconds")
    options = parser.parse_args(given)
    unknown = sorted(set(options.names) - set(ATTACKS))
    if unknown:
        parser.error(f"there is no attack {', '.join(unknown)}")
    held = 0
    with site() as target:
        for name in options.names or ATTACKS:
            for figure in ATTACKS[name](target, fast=options.fast):
                say(f"{name}: {figure.line()}")
                held += figure.succeeds
    say(f"{held} attacks succeed" if held else "no attack succeeds")
    return 1 if held else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
