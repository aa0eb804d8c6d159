"""`manage.py grants`: the database rights of the web and of the consumer, printed or applied."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from django.db import connection, transaction

from annals.access.grants import CONSUMER, WEB, statements


class Command(BaseCommand):
    help = "Print or apply the SQL that gives the web and the consumer their database rights."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--apply", action="store_true", help="run the SQL, as the owner of the tables"
        )

    def handle(self, **options: Any) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            for statement in statements():
                text = statement.as_string(connection.connection)
                if options["apply"]:
                    cursor.execute(text)
                else:
                    self.stdout.write(f"{text};")
        if options["apply"]:
            self.stdout.write(
                f"Roles {WEB} and {CONSUMER} have their rights. Make the logins of the processes "
                f"members of them: GRANT {WEB} TO web_login; GRANT {CONSUMER} TO consumer_login;"
            )
