"""`python -m tests.soak.moved PROGRAM ...`: manage.py, another script or gunicorn, on the moved
clock."""

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
        # gunicorn sets where metrics are kept before anything of Django is imported. A web process
        # opens no session of ingest.
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _move_sessions_of_ingest() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "annals.settings")
    django.setup()
    from ingest.store import session

    session.SEARCH_PATH = PATH


if __name__ == "__main__":
    main()
