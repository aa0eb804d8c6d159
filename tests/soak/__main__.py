"""`python -m tests.soak --minutes 60`: everything at once, and what it came to.

Prints one report. Ends with 1 if anything was lost, wrong, grew or failed without being expected.
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
    # So that SIGTERM stops the servers too.
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
