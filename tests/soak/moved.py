"""`python -m tests.soak.moved PROGRAM ...`: runs a Python program whose clock is days ahead.

PROGRAM is a script such as manage.py, or a module such as gunicorn. The environment variable
ANNALS_TEST_CLOCK_FILE names the file with the number of days.
"""

import os
import runpy
import sys
from datetime import UTC, datetime
from pathlib import Path

import django

from history.common import clock
from tests.soak.clock import FILE_VARIABLE, PATH, read_lead


def main() -> None:
    file = Path(os.environ[FILE_VARIABLE])
    clock.now = lambda: datetime.now(UTC) + read_lead(file)
    sys.argv = sys.argv[1:]
    if sys.argv[0].endswith(".py"):
        _move_sessions_of_ingest()
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        # gunicorn must set the folder of the metrics before Django is imported. A web process does
        # not open sessions of ingest, so the search path of these sessions is not changed.
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _move_sessions_of_ingest() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "annals.settings")
    django.setup()
    from ingest.store import session

    session.SEARCH_PATH = PATH


if __name__ == "__main__":
    main()
