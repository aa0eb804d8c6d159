"""Runs the cron jobs of the demo: `python -m annals.demo.cron LOGIN`.

LOGIN is the PostgreSQL login of this process. The constant JOBS lists the jobs for each login. A
job runs at once, and then again after each interval.
"""

import logging
import os
import sys
import time
from itertools import count
from typing import Final

import django
from django.core.management import call_command
from django.db import connection

from annals.embedded import logins
from history.common.error_text import describe

# The jobs by login, each with its interval in minutes.
JOBS: Final = {
    logins.OWNER: (
        (("partitions", "maintain"), 60),
        (("gaps",), 10),
        (("partitions", "verify"), 1440),
    ),
    logins.CONSUMER: ((("quarantine", "retry"), 1),),
}
log = logging.getLogger(__name__)


def main(login: str) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "annals.settings")
    django.setup()
    for minute in count():
        for words, minutes in JOBS[login]:
            if minute % minutes == 0:
                _run_job(*words)
        connection.close_pool()  # type: ignore[attr-defined] # of the backend of PostgreSQL
        time.sleep(60)


def _run_job(*words: str) -> None:
    """Run a command of Annals. An error is only logged, so that the other jobs still run."""
    try:
        call_command(*words)
    except (Exception, SystemExit) as error:
        log.warning("annals %s: %s", " ".join(words), describe(error))


if __name__ == "__main__":
    main(sys.argv[1])
