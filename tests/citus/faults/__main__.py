"""`python -m tests.citus.faults --stop COMMAND --start COMMAND [DSN]`: faults of a Citus cluster.

Kills and moves nodes under load, with a real consumer and readers of the API. DSN is that of a
coordinator with joined workers (default: ANNALS_TEST_CITUS). The run makes its own database on all
nodes. Ends with 1 if a message was lost or stored twice, or if a reader got a wrong answer.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import django


def main() -> int:
    options = _parse_options()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "annals.settings")
    django.setup()
    from tests.citus.faults.run import FaultPlan, run

    host, _, port = (options.third or "").rpartition(":")
    plan = FaultPlan(
        options.dsn,
        options.stop,
        options.start,
        (host, int(port)) if options.third else None,
        options.scene,
        options.shards,
        options.rate,
        options.seconds,
        options.times,
    )
    home = Path(tempfile.mkdtemp(prefix="annals-citus-"))
    home.chmod(0o755)
    print(f"in {home}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    keep = options.keep
    try:
        result = run(plan, home)
    except BaseException:
        keep = True
        raise
    finally:
        if not keep:
            shutil.rmtree(home, ignore_errors=True)
    print("", *result.lines, sep="\n")
    print("", *(f"WRONG {item}" for item in result.wrong[:20]), sep="\n")
    print(f"{len(result.wrong)} wrong answers")
    return 1 if result.wrong else 0


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.citus.faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("dsn", nargs="?", default=os.environ.get("ANNALS_TEST_CITUS"))
    node = "a command line, with {host} and {port}"
    parser.add_argument("--stop", required=True, help=f"ends a node as a crash does: {node}")
    parser.add_argument("--start", required=True, help=f"starts a node: {node}")
    parser.add_argument("--third", metavar="HOST:PORT", help="a node that has not joined")
    parser.add_argument(
        "--scene",
        action="append",
        default=[],
        choices=[
            "worker",
            "coordinator",
            "consumer",
            "prepared",
            "rebalance",
            "commit",
            "on-worker",
            "standby",
        ],
        help="this scene only; can be given several times",
    )
    parser.add_argument("--shards", type=int, default=8, help="number of shards of each table")
    parser.add_argument("--rate", type=float, default=200.0, help="messages a second")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long a node stays dead")
    parser.add_argument("--times", type=int, default=10, help="how often consumers are killed")
    parser.add_argument("--keep", action="store_true", help="keep the folder with all logs")
    options = parser.parse_args()
    if not options.dsn:
        parser.error("give the DSN of the coordinator, or set ANNALS_TEST_CITUS")
    return options


if __name__ == "__main__":
    sys.exit(main())
