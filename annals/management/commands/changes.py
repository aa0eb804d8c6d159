"""`annals changes`: versions of all documents in a span of time."""

from argparse import ArgumentParser, ArgumentTypeError
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand

from history.documents.record import ChangeType
from history.kinds.entities import BY_NAME


class Command(BaseCommand):
    help = (
        "Print the changes of all documents in a span of time: by a person (--author), by a "
        "service (--client-id), to a field (--path), or all. The span may be of any length: the "
        "command reads and prints it page by page. Sensitive fields are masked. At the end, the "
        "command says on stderr which span it read and how many versions it listed. If it is "
        "interrupted, it prints the token with which it can continue; exit 0: all changes were "
        "printed, even if there were none, 2: it failed, 130: it was interrupted."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        moment = "ISO 8601; without an offset it is UTC"
        add(
            "--from", type=parse_moment, help=f"first moment, {moment} (default: a day before --to)"
        )
        add("--to", type=parse_moment, help=f"moment after the last one, {moment} (default: now)")
        add(
            "--author",
            type=parse_login,
            metavar="LOGIN",
            help="only versions that this person made: the login, not the name",
        )
        add(
            "--client-id",
            type=parse_login,
            metavar="SERVICE",
            help="only versions that this service made: the client id, not the name",
        )
        add("--entity", choices=BY_NAME, metavar="KIND", help="only versions of this kind")
        add(
            "--type", choices=[*ChangeType.__members__], help="only creations, changes or deletions"
        )
        add("--path", help="only versions that changed this field: /rate")
        add("--order", choices=("desc", "asc"), default="desc", help="desc: newest first (default)")
        add(
            "--page-token",
            metavar="TOKEN",
            help="go on where an earlier call with the same --from, --to and filters stopped",
        )
        add(
            "--late-since",
            metavar="TOKEN",
            help="print late versions instead; TOKEN is that of the last page of an earlier call "
            "with --order asc. A version is late if it was stored after that call had passed its "
            "moment",
        )
        form = parser.add_mutually_exclusive_group()
        form.add_argument(
            "--json", action="store_true", help="one JSON object a line, as in GET changes"
        )
        form.add_argument("--csv", action="store_true", help="CSV, one line for each changed field")

    def handle(self, *_: Any, **options: Any) -> None:
        """Print the changes."""
        from annals.management.change_listing import print_changes

        print_changes(self, options)


def parse_login(text: str) -> str:
    """Return a login that was entered as an argument, unless it is empty.

    Raises:
        ArgumentTypeError: The login is empty.
    """
    if not text.strip():
        raise ArgumentTypeError("it is empty")
    return text


def parse_moment(text: str) -> datetime:
    """Parse a moment in ISO 8601 that was entered as an argument.

    A moment without an offset is taken as UTC.

    Raises:
        ArgumentTypeError: The text is not such a moment.
    """
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ArgumentTypeError(f"{text!r} is not a moment such as 2026-11-24T09:30") from None
