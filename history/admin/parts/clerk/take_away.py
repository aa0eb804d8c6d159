"""What a timeline shows as a file: CSV, XLSX, JSON, or a note for the client in plain words."""

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

import xlsxwriter
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.http import content_disposition_header
from django.utils.text import get_valid_filename
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from history.admin.parts import gaps, held
from history.admin.parts.cards import kind_text, title
from history.admin.parts.change_rows import ChangeRow
from history.admin.parts.clerk import sentences
from history.admin.parts.links import PAGE
from history.base.plain_text import no_formula
from history.complete_to import Completeness
from history.documents.exactjson import dumps
from history.entities import BY_NAME
from history.held_messages import OpenMessages, Quarantined
from history.timeline import Page, Version

AS: Final = "as"
FILES: Final = ("csv", "xlsx", "json")
MOST_LETTERS: Final = 32_767  # of a cell
MOST_HELD: Final = 100  # messages in quarantine that have a row
PLAIN: Final = held.Words(str.format, sentences.moment)


@dataclass(frozen=True, slots=True)
class Taken:
    """name: of the file; title: of what it is about. head: name and value of each line that says
    what the file is. path: of the filter, if one is used: nothing else is said of the versions.
    held: the messages in quarantine about what the file is about."""

    name: str
    title: str
    head: Sequence[tuple[str, str]]
    versions: Sequence[Version]
    path: str | None
    held: OpenMessages


def answer(taken: Taken, form: str) -> HttpResponse:
    """The file in one of FORMS; a note where there is no such form."""
    text, kind = FORMS.get(form, _note)(taken)
    response = HttpResponse(
        text, content_type=kind if isinstance(text, bytes) else f"{kind}; charset=utf-8"
    )
    return as_file(response, f"{taken.name}.{form if form in FILES else 'txt'}")


def as_file(response: HttpResponse, name: str) -> HttpResponse:
    """The answer as a file to save. A name may have any letters."""
    header = content_disposition_header(as_attachment=True, filename=get_valid_filename(name))
    response.headers["Content-Disposition"] = header or ""
    return response


def head(
    request: HttpRequest,
    chips: Sequence[tuple[str, str, str]],
    page: Page,
    known: Completeness,
    messages: OpenMessages,
) -> list[tuple[str, str]]:
    """Address, filter, zone, up to when everything was read, what of it is not stored, and whether
    older versions follow."""
    asked = request.GET.copy()
    asked.pop(AS, None)
    address = request.build_absolute_uri(f"{request.path}?{asked.urlencode()}".rstrip("?"))
    conditions = "; ".join(f"{name}: {value}" for name, value, _url in chips)
    moment = known.complete_to
    data = request.GET.get(AS) in FILES
    upto = moment and (
        f"{timezone.localtime(moment):%Y-%m-%d %H:%M:%S}" if data else sentences.moment(moment)
    )
    lacking = _held_text(messages)
    return [
        (_("Address"), address),
        (_("Filter"), conditions or _("none")),
        (_("Time zone"), timezone.get_current_timezone_name()),
        (_("Everything read up to") if lacking else _("Complete up to"), upto or "?"),
        *([(_("In quarantine, not in this file"), lacking)] if lacking else []),
        (pgettext("count", "Versions"), _older(page)),
    ]


def _held_text(messages: OpenMessages) -> str:
    """Return what the screen says of the messages, in one line."""
    merged = len({(each.entity, each.id) for each in messages.messages}) > 1
    said = held.notice(messages, merged=merged, words=PLAIN)
    return " ".join(filter(None, [said.headline, *said.sentences, said.nameless]))


def _older(page: Page) -> str:
    count = str(len(page.versions))
    return _("{n}, older ones follow").format(n=count) if page.next_token else count


def links(address: str, kept: Mapping[str, str], token: str | None) -> list[tuple[str, str]]:
    """Name and address of each form of the page that is shown."""
    page = {PAGE: token} if token else {}
    names = [*((each, each.upper()) for each in FILES), ("note", _("note for the client"))]
    return [(name, f"{address}?{urlencode({**kept, **page, AS: form})}") for form, name in names]


def _rows(taken: Taken) -> Iterator[dict[str, str]]:
    """A row for each change, as on the screen; one for a version without, and one below it for
    those that are missing before it. First one for each message in quarantine that no such row
    names."""
    names = [_("Time"), _("Kind"), _("Id"), _("Version"), _("What happened"), _("Person")]
    names += [_("Service"), _("Field"), _("Was"), _("Became")]
    for message in _untold(taken)[:MOST_HELD]:
        at = message.made_at and timezone.localtime(message.made_at)
        yield dict.fromkeys(names, "") | {
            _("Time"): at.isoformat(sep=" ", timespec="seconds") if at else "",
            _("Kind"): title(BY_NAME[message.entity]),
            _("Id"): message.id,
            _("Version"): "" if message.version is None else str(message.version),
            _("What happened"): PLAIN.message(message),
        }
    for version in taken.versions:
        at = timezone.localtime(version.updated_at)
        row = {
            _("Time"): at.isoformat(sep=" ", timespec="seconds"),
            _("Kind"): title(version.entity),
            _("Id"): version.id,
            _("Version"): str(version.version),
            _("What happened"): kind_text(version.type),
            _("Person"): version.author.name if version.author else "",
            _("Service"): version.service.name,
        }
        changes: Sequence[ChangeRow | None] = sentences.rows(version, taken.path) or [None]
        for change in changes:
            row = row | {
                _("Field"): " › ".join((*change.trail, change.label)) if change else "",
                _("Was"): change.old.local if change else "",
                _("Became"): change.new.local if change else "",
            }
            yield row
        if lost := sentences.missing(version):
            about = {name: row[name] for name in (_("Kind"), _("Id"))}
            yield dict.fromkeys(row, "") | about | {_("What happened"): lost}


def _untold(taken: Taken) -> Sequence[Quarantined]:
    """Return the messages in quarantine that nothing on the shown versions names."""
    told = {
        (version.entity.name, version.id, number)
        for version in taken.versions
        for number in list(version.came)[: gaps.MOST]
    }
    messages = taken.held.messages
    return [each for each in messages if (each.entity, each.id, each.version) not in told]


def _csv(taken: Taken) -> tuple[str, str]:
    """With a byte order mark and semicolons, as Excel of a Russian Windows reads it."""
    file = io.StringIO()
    file.write("\N{ZERO WIDTH NO-BREAK SPACE}")
    writer = csv.writer(file, delimiter=";")
    writer.writerows((name, no_formula(value)) for name, value in taken.head)
    writer.writerow(())
    rows = list(_rows(taken))
    writer.writerow(rows[0] if rows else ())
    writer.writerows([no_formula(value) for value in row.values()] for row in rows)
    return file.getvalue(), "text/csv"


def _xlsx(taken: Taken) -> tuple[bytes, str]:
    """All cells are texts."""
    file = io.BytesIO()
    book = xlsxwriter.Workbook(file, {"in_memory": True, "strings_to_formulas": False})
    sheet = book.add_worksheet()
    bold = book.add_format({"bold": True})
    for number, (name, value) in enumerate(taken.head):
        sheet.write_string(number, 0, name, bold)
        sheet.write_string(number, 1, value[:MOST_LETTERS])
    rows = list(_rows(taken))
    for number, row in enumerate(rows, len(taken.head) + 2):
        for place, (name, value) in enumerate(row.items()):
            sheet.write_string(len(taken.head) + 1, place, name, bold)
            sheet.write_string(number, place, value[:MOST_LETTERS])
    sheet.set_column(0, 9, 22)
    book.close()
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
    return file.getvalue(), kind


def _json(taken: Taken) -> tuple[str, str]:
    about = {"about": dict(taken.head), "changes": [*_rows(taken)]}
    return dumps(about).decode(), "application/json"


def _note(taken: Taken) -> tuple[str, str]:
    """What it is about and of which days; then oldest first one sentence a change, on one line: a
    value is no line of its own."""
    ends = [taken.versions[place].updated_at for place in (-1, 0)] if taken.versions else []
    days = dict.fromkeys(sentences.day(each) for each in ends)
    heading = ", ".join(filter(None, [taken.title, " – ".join(days)]))
    said = [
        " ".join(sentence.splitlines())
        for version in reversed(taken.versions)
        for sentence in sentences.of_version(version, taken.path)
    ]
    about = [f"{name}: {value}" for name, value in taken.head[2:]]
    return "\n".join([" ".join(heading.splitlines()), "", *said, "", *about, ""]), "text/plain"


FORMS: Final[Mapping[str, Callable[[Taken], tuple[str | bytes, str]]]] = {
    "xlsx": _xlsx,
    "csv": _csv,
    "json": _json,
    "note": _note,
}
