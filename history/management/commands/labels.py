"""manage.py labels load FILE.json: what people call the fields."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from history import labels


class Command(BaseCommand):
    help = "Load field labels from a JSON list; labels for the same field are replaced."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        action = actions.add_parser("load", help="add and change labels; none is removed")
        action.add_argument("file", type=Path, metavar="FILE.json", help="as history/labels.json")

    def handle(self, **options: Any) -> None:
        file: Path = options["file"]
        try:
            count = labels.load(file.read_bytes())
        except OSError as error:
            raise CommandError(f"{file}: {error}") from None
        except labels.LabelsFileError as error:
            raise CommandError(f"{file} was not loaded: {error}") from None
        self.stdout.write(f"{count} labels loaded.")
