"""Prints all changes in a span of time, page by page, for `annals changes`."""

import csv
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError
from django.utils import translation
from msgspec import UnsetType

from annals.access.journal.actions import AccessAction
from annals.access.journal.write import record_operator_access
from history import timeline
from history.api.answers import AnswerFormat
from history.api.changes import list_changed_versions
from history.common.plain_text import escape_formulas, to_one_line
from history.completeness import complete_to
from history.diff import MaybeJson
from history.documents.exactjson import dumps
from history.documents.record import ChangeType
from history.kinds.entities import BY_NAME, ENTITIES
from history.management.progress import show_progress
from history.store.catalogue import people
from history.timeline import (
    BadParameterError,
    ChangesPage,
    ChangesQuery,
    HistoryReader,
    Include,
    NotFoundError,
    TimelineOrder,
    Version,
    VersionFilters,
)
from history.timeline.changes import describe_filters

_PAGE_SIZE: Final = 200
_MINUTE: Final = timedelta(minutes=1)
_COLUMNS: Final = (
    "time",
    "author",
    "authorName",
    "clientId",
    "kind",
    "id",
    "version",
    "type",
    "applicationId",
    "path",
    "old",
    "new",
)
_INTERRUPTED: Final = 130  # as a shell reports Ctrl-C
# The option of this command for each parameter of the API, if the names differ.
_OPTIONS: Final = {
    "clientId": "client-id",
    "pageToken": "page-token",
    "lateSince": "late-since",
}

_MAX_NAMED: Final = 5  # how many logins a sentence names

TimeSpan = tuple[datetime, datetime]  # since (included) and until
PrintPage = Callable[[HistoryReader, ChangesPage], None]
ShowPage = Callable[[ChangesPage], None]


def print_changes(command: BaseCommand, options: dict[str, Any]) -> None:
    """Print the changes that the options of `annals changes` ask for.

    Raises:
        CommandError: An option is wrong, or the changes cannot be read.
    """
    query = _make_query(options)
    record_operator_access(AccessAction.SEARCH, _describe_query(query))
    print_page = _choose_printer(command, options)
    pages = _generate_pages(query)
    token = query.late_since or query.page_token
    name = "late-since" if query.late_since else "page-token"
    version_count, span = 0, None
    with translation.override("en"):
        try:
            with ExitStack() as stack:
                show_page: ShowPage | None = None
                for reader, page in pages:
                    print_page(reader, page)
                    command.stdout.flush()
                    token = page.next_token
                    version_count += len(page.versions)
                    span = _extend_span(span, page)
                    show_page = show_page or stack.enter_context(_show_progress(query, page))
                    show_page(page)
        except KeyboardInterrupt:
            if token:
                command.stderr.write(f"Interrupted. To continue: --{name} {token}")
            sys.exit(_INTERRUPTED)
        except BadParameterError as error:
            option = _OPTIONS.get(error.name, error.name)
            reason = str(error).removeprefix(f"{error.name}: ").replace("clientId", "--client-id")
            raise CommandError(f"--{option} {reason}", returncode=2) from None
        except NotFoundError as error:
            raise CommandError(str(error), returncode=2) from None
    command.stderr.write(_summarize(query, version_count, span))
    if not version_count:
        for sentence in _explain_wrong_logins(query.filters):
            command.stderr.write(sentence)
    if query.is_feed and token:
        command.stderr.write(
            f"For later changes: --page-token {token}\n"
            f"For changes that arrive later with earlier moments: --late-since {token}"
        )


def _make_query(options: dict[str, Any]) -> ChangesQuery:
    entity = BY_NAME[options["entity"]] if options["entity"] else None
    order = TimelineOrder(options["order"])
    return ChangesQuery(
        filters=VersionFilters(
            since=options["from"],
            until=options["to"],
            author=options["author"],
            client_id=options["client_id"],
            type=ChangeType[options["type"]] if options["type"] else None,
            path=options["path"],
        ),
        entity=entity,
        order=order,
        page_size=_PAGE_SIZE,
        page_token=options["page_token"],
        late_since=options["late_since"],
        is_span_limited=False,
        include=frozenset(Include) if options["json"] else frozenset({Include.CHANGES}),
    )


def _describe_query(query: ChangesQuery) -> str:
    """Return the command line as the access journal records it. The token is left out."""
    since, until = query.filters.since, query.filters.until
    values = {
        "from": since and since.isoformat(),
        "to": until and until.isoformat(),
        **describe_filters(query),
    }
    options = [f"--{_OPTIONS.get(name, name)} {value}" for name, value in values.items() if value]
    return " ".join(["changes", *options])


def _extend_span(span: TimeSpan | None, page: ChangesPage) -> TimeSpan:
    """Return `span`, extended to the end of `page` if `page` ends later.

    Args:
        span: The span of the earlier pages; None if `page` is the first one.
    """
    since, until = page.span
    return (since, until) if span is None else (span[0], max(span[1], until))


def _summarize(query: ChangesQuery, version_count: int, span: TimeSpan | None) -> str:
    """Return a sentence that says which span was read, and how many versions were listed."""
    versions = "1 version" if version_count == 1 else f"{version_count} versions"
    if span is None or query.late_since is not None:
        return f"Listed {versions}."
    since, until = map(_format_moment, span)
    return f"Listed {versions} from {since} to {until}."


def _explain_wrong_logins(filters: VersionFilters) -> Iterator[str]:
    """Generate sentences about the logins in the filters that are probably wrong.

    The author should be a known person, and the client id should be a known service.
    """
    options = (
        ("--author", filters.author, "person"),
        ("--client-id", filters.client_id, "service"),
    )
    for option, login, kind in options:
        if login is None:
            continue
        named_login = people.fetch_named_logins([login])[login]
        other = "--client-id" if kind == "person" else "--author"
        if named_login.kind == "unknown":
            yield f"{option} {login}: the list of people and services does not have this login."
            logins = [match.login for match in people.find_by_name(login) if match.kind == kind]
            if logins:
                more = ", …" if len(logins) > _MAX_NAMED else ""
                yield f"This is a name. The login is: {', '.join(logins[:_MAX_NAMED])}{more}"
        elif named_login.kind != kind:
            yield f"{option} {login}: this is a {named_login.kind}; use {other}."


@contextmanager
def _show_progress(query: ChangesQuery, first: ChangesPage) -> Iterator[ShowPage]:
    """Show on stderr how many minutes of the span have been read.

    With a path filter, the command may print no change for a long time. The late list has no
    span, so for this list the number of versions is shown.

    Args:
        first: The first page of the list. Its span is the span of the whole list.

    Yields:
        A function to call with each page after it is read.
    """
    if query.late_since is not None:
        with show_progress("late changes", None, sys.stderr) as advance:
            yield lambda page: advance(len(page.versions))
        return
    since, until = first.span
    shown_minutes = 0
    total = (until - since) // _MINUTE
    with show_progress("changes, minutes of the span", total, sys.stderr) as advance:

        def show_page(page: ChangesPage) -> None:
            nonlocal shown_minutes
            if page.read_to is None:
                return
            is_ascending = query.order is TimelineOrder.ASC
            duration = page.read_to - since if is_ascending else until - page.read_to
            advance(duration // _MINUTE - shown_minutes)
            shown_minutes = duration // _MINUTE

        yield show_page


def _generate_pages(query: ChangesQuery) -> Iterator[tuple[HistoryReader, ChangesPage]]:
    """Generate each page of the list, together with the reader that fetched it."""
    while True:
        if query.order is TimelineOrder.ASC:
            kinds = [query.entity] if query.entity else ENTITIES
            complete = complete_to.read_completeness(kinds).complete_to
            query = replace(query, complete_to=complete)
        reader = timeline.make_host_reader()
        page = timeline.fetch_changes_page(reader, query)
        yield reader, page
        is_feed_read = query.order is TimelineOrder.ASC and page.is_complete
        if page.next_token is None or (is_feed_read and len(page.versions) < query.page_size):
            return
        if query.late_since is not None:
            query = replace(query, late_since=page.next_token)
        else:
            query = replace(query, page_token=page.next_token)


def _choose_printer(command: BaseCommand, options: dict[str, Any]) -> PrintPage:
    write = command.stdout.write
    if options["json"]:
        output = AnswerFormat(include=frozenset(Include), zone=UTC, language="en")

        def print_objects(reader: HistoryReader, page: ChangesPage) -> None:
            for entry in list_changed_versions(reader, page, output):
                write(dumps(entry).decode())

        return print_objects
    if options["csv"]:
        out: Any = command.stdout  # its write() adds a missing line end
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(_COLUMNS)

        def print_rows(_reader: HistoryReader, page: ChangesPage) -> None:
            for version in page.versions:
                for row in _generate_rows(version):
                    writer.writerow(map(escape_formulas, row))

        return print_rows

    def print_lines(_reader: HistoryReader, page: ChangesPage) -> None:
        for version in page.versions:
            write(to_one_line(_format_line(version)))

    return print_lines


def _generate_rows(version: Version) -> Iterator[list[str]]:
    """Yield a row for each changed field, or one row for a version without a change."""
    author = version.author
    identity = [
        version.updated_at.isoformat(),
        author.login if author else "",
        author.name if author else "",
        version.client_id,
        version.entity.name,
        version.id,
        str(version.version),
        version.type.name,
        "" if version.entity.is_standalone else version.product_instance_id or version.id,
    ]
    if not version.changes:
        yield [*identity, "", "", ""]
    for labelled in version.changes:
        change = labelled.change
        yield [*identity, change.path, _format_value(change.old), _format_value(change.new)]


def _format_value(value: MaybeJson) -> str:
    """Return a value as JSON, or "" if there is no value. The value null is "null"."""
    return "" if isinstance(value, UnsetType) else dumps(value).decode()


def _format_line(version: Version) -> str:
    """Return a version as a line for people.

    The columns have fixed widths, because the later lines are not known when a line is printed.
    """
    person = version.author.name if version.author else "-"
    document = f"{version.entity.name} {version.id}"
    if version.product_instance_id and version.product_instance_id != version.id:
        document += f" of {version.product_instance_id}"
    fields = [labelled.change.path for labelled in version.changes if not labelled.technical]
    more = f" +{len(fields) - 3}" if len(fields) > 3 else ""
    action = f"v{version.version} {version.type.name.lower()}"
    who = f"{_format_moment(version.updated_at)}  {person:<24}  {version.service.name:<16}"
    return f"{who}  {document:<46}  {action:<14}  {' '.join(fields[:3])}{more}".rstrip()


def _format_moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
