"""`python -m tests.oracle --histories 500 --seed 1`: many histories, and what was compared."""

import argparse
import os
import sys

import pytest


class Report:
    """Prints the counts at the end."""

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        from tests.oracle.checks import COUNTS

        for name, count in COUNTS.items():
            terminalreporter.write_line(f"{count:>10,} {name}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.add_argument("--histories", type=int, default=500, help="how many histories")
    parser.add_argument("--seed", type=int, help="of Hypothesis; random where not given")
    options = parser.parse_args()
    os.environ["ORACLE_HISTORIES"] = str(options.histories)
    seed = [] if options.seed is None else [f"--hypothesis-seed={options.seed}"]
    return int(pytest.main(["tests/oracle", "-q", "--show-capture=no", *seed], plugins=[Report()]))


if __name__ == "__main__":
    sys.exit(main())
