"""`python -m tests.outbox.writes`: records what standard input says in the database of
OUTBOX_TEST_DATABASE, and counts it as sent. Lines of JSON: entity, id, parent, author, data."""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.outbox.settings"
    import django
    from django.core.management import call_command
    from django.db import connection, transaction

    django.setup()
    import outbox

    call_command("migrate", run_syncdb=True, verbosity=0)
    for line in sys.stdin:
        entity, id, parent, author, data = json.loads(line)
        with transaction.atomic():
            outbox.record(entity, id, data, parent=parent, author=author)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE outbox_document SET sent = version, waiting_since = NULL")


if __name__ == "__main__":
    main()
