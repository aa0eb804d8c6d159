"""`python -m tests.soak --minutes 60`: an hour of load with passing days and faults.

Prints a report. Ends with 1 if a version was lost or wrong, if memory grew, or if something failed
that no fault explains.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=60, help="how long the load lasts")
    parser.add_argument("--keep", action="store_true", help="keep the folder with all logs")
    options = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "annals.settings")
    from tests.soak.run import Soak

    home = Path(tempfile.mkdtemp(prefix="annals-soak-"))
    home.chmod(0o755)
    print(f"in {home}", flush=True)
    # With this handler SIGTERM ends the soak through `finally`, which stops the servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        soak = Soak(home, options.minutes)
        soak.run_to_end()
        from tests.soak.report import print_report

        return print_report(soak)
    finally:
        if not options.keep:
            shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
