"""`python -m tests.attack [NAME...]`: attacks the production web server.

The exit code is 1 if an attack succeeds. A line of the output has what was measured, the measured
figure and the limit of the figure. The tests run the attacks with `--fast`.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import Protocol

from tests.attack import expensive_questions, giant_documents, odd_requests, slow_clients
from tests.attack.web import AttackedSite, AttackFigure, create_site


class Attack(Protocol):
    """A function that attacks a site and yields figures.

    With `fast`, the attack is small and ends after a few seconds.
    """

    def __call__(self, site: AttackedSite, *, fast: bool) -> Iterator[AttackFigure]: ...


ATTACKS: dict[str, Attack] = {
    "half-open": slow_clients.attack_half_open,
    "slow-loris": slow_clients.attack_slowly,
    "slow-reader": slow_clients.attack_without_reading,
    "expensive-questions": expensive_questions.attack_with_questions,
    "colleague": expensive_questions.attack_colleague,
    "deadline": expensive_questions.attack_deadline,
    "odd-requests": odd_requests.attack_metrics,
    "forged-logs": odd_requests.attack_logs,
    "giant-documents": giant_documents.attack_with_giants,
}


def main(arguments: list[str], print_line: Callable[[str], None] = print) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(ATTACKS)}")
    parser.add_argument("--fast", action="store_true", help="smaller attacks, of some seconds")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(ATTACKS))
    if unknown:
        parser.error(f"there is no attack {', '.join(unknown)}")
    successes = 0
    with create_site() as target:
        for name in options.names or ATTACKS:
            for figure in ATTACKS[name](target, fast=options.fast):
                print_line(f"{name}: {figure.format_line()}")
                successes += figure.succeeds
    print_line(f"{successes} attacks succeed" if successes else "no attack succeeds")
    return 1 if successes else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
