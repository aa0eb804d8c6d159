"""What the tests of this folder do not run, or run in another way."""

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
# Commands whose words are only parsed here: they need Kafka, or run until they are stopped.
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
# Commands that end with something else than 0 there: code, and a part of what is said.
ENDS: Final = {
    "partitions adopt 2026-08-21 --entity product-instance --why"
    " 'database restored from the backup of 2026-11-20'": (2, "the database knows these rows"),
    # The line is two: the first restored all kinds.
    "partitions restore 2026-08-21 --entity product-instance": (2, "exists and has all rows"),
    "--version": (0, __version__),
}
# Commands that are run when all others were.
AT_THE_END: Final = (
    "check --deploy --database default",
    "partitions forget 2026-08-21 --entity product-instance --why"
    " 'order 7 of the data protection officer'",
)
