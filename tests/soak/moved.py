"""`python -m tests.soak.moved PROGRAM ...`: runs a Python program on the moved clock.

PROGRAM is manage.py, another script, or a module such as gunicorn.
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
        # not open sessions of ingest, so these need no moved clock.
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _move_sessions_of_ingest() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "annals.settings")
    django.setup()
    from ingest.store import session

    session.SEARCH_PATH = PATH


if __name__ == "__main__":
    main()
