"""`python -m tests.oracle --histories 500 --seed 1`: the oracle test with many histories.

Prints how much was compared.
"""

import argparse
import os
import sys

import pytest


class OracleSummary:
    """A pytest plugin that prints at the end how much was compared."""

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        from tests.oracle.checks import COUNTS

        for name, count in COUNTS.items():
            terminalreporter.write_line(f"{count:>10,} {name}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.add_argument("--histories", type=int, default=500, help="how many histories")
    parser.add_argument("--seed", type=int, help="the seed of Hypothesis; random by default")
    parser.add_argument(
        "--cluster",
        metavar="DSN",
        help="the DSN of the coordinator of a Citus cluster on which to run the test",
    )
    options = parser.parse_args()
    os.environ["ORACLE_HISTORIES"] = str(options.histories)
    arguments = ["tests/oracle", "-q", "--show-capture=no"]
    if options.seed is not None:
        arguments.append(f"--hypothesis-seed={options.seed}")
    if options.cluster is not None:
        os.environ["ANNALS_TEST_CITUS"] = options.cluster
        arguments += ["-p", "tests.citus.whole"]
    return int(pytest.main(arguments, plugins=[OracleSummary()]))


if __name__ == "__main__":
    sys.exit(main())
