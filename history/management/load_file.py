"""The base class of commands that load a file into a catalogue, whole or not at all."""

from pathlib import Path
from typing import Any, ClassVar

from django.core.management.base import BaseCommand, CommandError, CommandParser

from history.common.explained_errors import FileError, read_bytes


class LoadFileCommand(BaseCommand):
    """A command `annals NAME ACTION FILE`. A subclass declares ACTION and FILE, and loads the file.

    Attributes:
        action: ACTION, and its help text.
        file: FILE as the help names it, and its help text.
    """

    action: ClassVar[tuple[str, str]]
    file: ClassVar[tuple[str, str]]

    def load(self, text: bytes) -> str:
        """Load the content of the file and return what was done, as a sentence.

        Raises:
            ValueError: The file has mistakes, which the message lists. Nothing was changed.
        """
        raise NotImplementedError

    def add_arguments(self, parser: CommandParser) -> None:
        (name, text), (file, content) = self.action, self.file
        actions = parser.add_subparsers(dest="action", required=True)
        action = actions.add_parser(name, help=text)
        action.add_argument("file", type=Path, metavar=file, help=content)

    def handle(self, **options: Any) -> None:
        file: Path = options["file"]
        try:
            content = read_bytes(file)
        except FileError as error:
            raise CommandError(str(error)) from None
        try:
            sentence = self.load(content)
        except ValueError as error:
            message = str(error)
            gap = "\n" if "\n" in message else " "
            raise CommandError(f"{file} was not loaded, nothing changed:{gap}{message}") from None
        self.stdout.write(sentence)
