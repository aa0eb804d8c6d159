"""What cron does elsewhere, for the demo: each job at the start, then in turn."""

import logging
import os
import time
from itertools import count
from typing import Final

import django
from django.core.management import CommandError, call_command

# Each with the number of minutes after which it runs again.
JOBS: Final = (
    (("partitions", "maintain"), 60),
    (("quarantine", "retry"), 1),
    (("gaps",), 10),
    (("partitions", "verify"), 1440),
)
log = logging.getLogger(__name__)


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "annals.settings")
    django.setup()
    for minute in count():
        for words, every in JOBS:
            if minute % every == 0:
                _run(*words)
        time.sleep(60)


def _run(*words: str) -> None:
    """A job that fails is in the log, and on the page of operators."""
    try:
        call_command(*words)
    except (CommandError, SystemExit) as error:
        log.warning("annals %s: %s", " ".join(words), error)


if __name__ == "__main__":
    main()
