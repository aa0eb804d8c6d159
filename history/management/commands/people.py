"""manage.py people import FILE.csv: logins to full names and kinds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from history import people


class Command(BaseCommand):
    help = "Import logins with their full names from CSV (login,full_name,kind)."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        action = actions.add_parser("import", help="add and change people; nobody is removed")
        action.add_argument("file", type=Path, metavar="FILE.csv", help="UTF-8, with a header line")

    def handle(self, **options: Any) -> None:
        file: Path = options["file"]
        try:
            with file.open(encoding="utf-8-sig", newline="") as opened:
                done = people.load(opened)
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{file}: {error}") from None
        except people.PeopleFileError as error:
            raise CommandError(f"{file} was not imported:\n{error}") from None
        self.stdout.write(
            f"{done.added} added, {done.changed} changed, {done.unchanged} as they were."
        )
