"""Code blocks and commands of the documentation that the tests in this folder treat specially.

Some are not run, some are run last, and some must exit with a code other than 0.
"""

from typing import Final

from annals import __version__

# Pages whose blocks other tests run: tests/db/test_api_docs.py, tests/system/test_backup_page.py
# and tests/shop/test_integrate.py.
PAGES_ELSEWHERE: Final = ("docs/api.md", "docs/backup.md", "docs/integrate.md")
# First lines of blocks that other tests run: tests/kafka/test_producers.py and
# tests/system/test_server_settings.py.
BLOCKS_ELSEWHERE: Final = (
    '"""Sends three versions of one application: python produce.py localhost:9092 TOPIC ID"""',
    "ALTER SYSTEM SET shared_buffers = '4GB';",
)
# Commands that are only parsed. They need Kafka, or run until they are stopped.
ONLY_PARSED: Final = (
    "consume --topics top-storage.export.product-instance,top-storage.export.participant-role",
    "consume --group annals-migration --topics top-storage.export.migration.product-instance",
    "embedded start",
    "embedded status",
    "embedded stop",
    "runserver",
    "simulate",
    "simulate --rps 0 --applications 26000",
    "simulate --days 30 --applications 500",
)
# The exit code of some commands in the test, and a part of their output. Others must end with 0.
ENDS: Final = {
    "partitions adopt 2026-08-21 --entity product-instance --why"
    " 'database restored from the backup of 2026-11-20'": (
        2,
        "the database has already noted these rows",
    ),
    # The page has this command with and without --entity. The first one has restored all kinds.
    "partitions restore 2026-08-21 --entity product-instance": (2, "exists and has all rows"),
    "--version": (0, __version__),
}
# Commands that run after all others.
AT_THE_END: Final = (
    "check --deploy --database default",
    "partitions forget 2026-08-21 --entity product-instance --why"
    " 'order 7 of the data protection officer'",
)
