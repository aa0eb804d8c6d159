"""`python -m tests.soak.moved PROGRAM ...`: manage.py or gunicorn, on the moved clock."""

import os
import runpy
import sys
from datetime import UTC, datetime
from pathlib import Path

from history.base import clock
from ingest.store import session
from tests.soak.clock import FILE_VARIABLE, PATH, read


def main() -> None:
    file = Path(os.environ[FILE_VARIABLE])
    clock.now = lambda: datetime.now(UTC) + read(file)
    session.SEARCH_PATH = PATH
    sys.argv = sys.argv[1:]
    if sys.argv[0].endswith(".py"):
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
