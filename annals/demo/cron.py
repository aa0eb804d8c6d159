"""What cron does elsewhere, for the demo: `python -m annals.demo.cron LOGIN` runs the jobs of a
login of PostgreSQL, each at the start, then in turn."""

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
from history.base.error_text import describe

# By login; each with the number of minutes after which it runs again.
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
        for words, every in JOBS[login]:
            if minute % every == 0:
                _run(*words)
        connection.close_pool()  # type: ignore[attr-defined] # of the backend of PostgreSQL
        time.sleep(60)


def _run(*words: str) -> None:
    """A job that fails is in the log, and on the page of operators; the next one runs."""
    try:
        call_command(*words)
    except (Exception, SystemExit) as error:
        log.warning("annals %s: %s", " ".join(words), describe(error))


if __name__ == "__main__":
    main(sys.argv[1])
