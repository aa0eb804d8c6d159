"""Exports a page of a timeline as CSV, XLSX or JSON, or as a note for the client in plain words."""

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import urlencode

import xlsxwriter
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.http import content_disposition_header
from django.utils.text import get_valid_filename
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

from history.admin.components import gaps, open_messages
from history.admin.components.cards import get_change_text, get_kind_title
from history.admin.components.filter_form import FilterForm, describe_span
from history.admin.components.links import PAGE
from history.admin.reading_aids import sentences
from history.common.plain_text import escape_formulas
from history.completeness.complete_to import StoreCompleteness
from history.documents.exactjson import dumps
from history.kinds.entities import BY_NAME
from history.store.quarantined_messages import OpenMessages, QuarantinedMessage
from history.timeline import TimelinePage, Version

FORM_PARAMETER: Final = "as"
FILES: Final = ("csv", "xlsx", "json")
# How many changes have a row in one file. This many take some seconds to write as XLSX.
MAX_FILE_CHANGES: Final = 50_000
MAX_CELL_LETTERS: Final = 32_767  # the limit of Excel
MAX_HELD_ROWS: Final = 100  # how many messages in quarantine have a row
PLAIN: Final = open_messages.SentenceWriter(str.format, sentences.format_moment)


@dataclass(frozen=True, slots=True)
class TimelineExport:
    """The content of an exported file.

    Attributes:
        name: The name of the file, without its extension.
        title: The title of the document.
        head: Pairs of a name and a value for the lines that describe the file.
        versions: The versions of the page.
        path: The path of the filter, or None. With a path, only matching changes are written.
        quarantined: The messages in quarantine about the documents of the file.
    """

    name: str
    title: str
    head: Sequence[tuple[str, str]]
    versions: Sequence[Version]
    path: str | None
    quarantined: OpenMessages


def make_response(export: TimelineExport, form: str) -> HttpResponse:
    """Answer with the timeline as a file to save.

    Args:
        form: The format of the file, a key of FORMS. If `form` is not a key of FORMS, the file is
            a note in plain words for the bank's client, as for the key "note".
    """
    text, kind = FORMS.get(form, _write_note)(export)
    response = HttpResponse(
        text, content_type=kind if isinstance(text, bytes) else f"{kind}; charset=utf-8"
    )
    return as_file(response, f"{export.name}.{form if form in FILES else 'txt'}")


def as_file(response: HttpResponse, name: str) -> HttpResponse:
    """Let the browser save the answer as a file. Its name may have letters of any alphabet."""
    header = content_disposition_header(as_attachment=True, filename=get_valid_filename(name))
    response.headers["Content-Disposition"] = header or ""
    return response


def describe_export(
    request: HttpRequest,
    form: FilterForm,
    page: TimelinePage,
    completeness: StoreCompleteness,
    messages: OpenMessages,
    span: tuple[datetime, datetime] | None = None,
) -> list[tuple[str, str]]:
    """Return the lines that describe the file, as pairs of a name and a value.

    They say the address, the filter, the time zone, the moment up to which Kafka was read, what is
    in quarantine, and whether older versions follow. With `span`, they also say which time was
    looked at.
    """
    chips = form.make_chips(request.path)
    conditions = "; ".join(f"{chip.label}: {chip.value}" for chip in chips)
    moment = completeness.complete_to
    is_data = request.GET.get(FORM_PARAMETER) in FILES
    upto = moment and (
        f"{timezone.localtime(moment):%Y-%m-%d %H:%M:%S}"
        if is_data
        else sentences.format_moment(moment)
    )
    lacking = _describe_open_messages(messages)
    return [
        (_("Address"), form.build_shared_url(request)),
        (_("Filter"), conditions or _("none")),
        *([(_("Looked at"), describe_span(*span))] if span else []),
        (_("Time zone"), timezone.get_current_timezone_name()),
        (_("Everything read up to") if lacking else _("Complete up to"), upto or "?"),
        *([(_("In quarantine, not in this file"), lacking)] if lacking else []),
        (pgettext("count", "Versions"), _format_count(page)),
    ]


def _describe_open_messages(messages: OpenMessages) -> str:
    """Return in one line the notice about messages in quarantine that a page would show."""
    merged = len({(message.entity, message.id) for message in messages.messages}) > 1
    notice = open_messages.make_notice(messages, merged=merged, words=PLAIN)
    return " ".join(filter(None, [notice.headline, *notice.sentences, notice.nameless]))


def _format_count(page: TimelinePage) -> str:
    count = str(len(page.versions))
    return _("{n}, older ones follow").format(n=count) if page.next_token else count


def list_file_links(
    address: str, parameters: Mapping[str, str], token: str | None
) -> list[tuple[str, str]]:
    """Return the name and the address of an export of the page in each file format."""
    page = {PAGE: token} if token else {}
    names = [*((form, form.upper()) for form in FILES), ("note", _("note for the client"))]
    return [
        (name, f"{address}?{urlencode({**parameters, **page, FORM_PARAMETER: form})}")
        for form, name in names
    ]


def _generate_rows(export: TimelineExport) -> Iterator[dict[str, str]]:
    """Yield a row for each change of each version, technical fields last.

    A version without changes has one row. A file has at most MAX_FILE_CHANGES changes. Below each
    version with changes that were left out, a row says how many were left out. If the store lacks
    versions right before a version, a row below that version says so. The first rows are for
    messages in quarantine, if the rows of the versions do not mention them.
    """
    names = [_("Time"), _("Kind"), _("Id"), _("Version"), _("What happened"), _("Person")]
    names += [_("Service"), _("Field"), _("Was"), _("Became")]
    for message in _list_unmentioned_messages(export)[:MAX_HELD_ROWS]:
        moment = message.made_at and timezone.localtime(message.made_at)
        yield dict.fromkeys(names, "") | {
            _("Time"): moment.isoformat(sep=" ", timespec="seconds") if moment else "",
            _("Kind"): get_kind_title(BY_NAME[message.entity]),
            _("Id"): message.id,
            _("Version"): "" if message.version is None else str(message.version),
            _("What happened"): PLAIN.describe_message(message),
        }
    rows_left = MAX_FILE_CHANGES
    for version in export.versions:
        moment = timezone.localtime(version.updated_at)
        row = {
            _("Time"): moment.isoformat(sep=" ", timespec="seconds"),
            _("Kind"): get_kind_title(version.entity),
            _("Id"): version.id,
            _("Version"): str(version.version),
            _("What happened"): get_change_text(version.type),
            _("Person"): version.author.name if version.author else "",
            _("Service"): version.service.name,
        }
        changes = sentences.list_changes(version, export.path)
        written_changes = changes[:rows_left]
        rows_left -= len(written_changes)
        for change in sentences.generate_rows(version, written_changes):
            yield row | {
                _("Field"): " › ".join((*change.trail, change.label)),
                _("Was"): change.old.local,
                _("Became"): change.new.local,
            }
        if not written_changes:
            yield row | dict.fromkeys((_("Field"), _("Was"), _("Became")), "")
        remarks = [_describe_omitted_changes(len(changes) - len(written_changes))]
        remarks.append(sentences.explain_missing_before(version))
        identity = {name: row[name] for name in (_("Kind"), _("Id"))}
        for remark in filter(None, remarks):
            yield dict.fromkeys(names, "") | identity | {_("What happened"): remark}


def _describe_omitted_changes(count: int) -> str:
    """Return a sentence that says how many changes of a version are not in the file. "" for 0."""
    if not count:
        return ""
    text = ngettext(
        "{n} more change of the version above is not in this file.",
        "{n} more changes of the version above are not in this file.",
        count,
    )
    return text.format(n=count)


def _list_unmentioned_messages(export: TimelineExport) -> Sequence[QuarantinedMessage]:
    """Return the messages in quarantine that the rows of the exported versions do not mention."""
    mentioned = {
        (version.entity.name, version.id, number)
        for version in export.versions
        for number in list(version.quarantined)[: gaps.MAX_SENTENCES]
    }
    messages = export.quarantined.messages
    return [
        message
        for message in messages
        if (message.entity, message.id, message.version) not in mentioned
    ]


def _write_csv(export: TimelineExport) -> tuple[str, str]:
    """Write CSV for Excel on a Russian Windows: with a byte order mark and semicolons."""
    file = io.StringIO()
    file.write("\N{ZERO WIDTH NO-BREAK SPACE}")
    writer = csv.writer(file, delimiter=";")
    writer.writerows((name, escape_formulas(value)) for name, value in export.head)
    writer.writerow(())
    for number, row in enumerate(_generate_rows(export)):
        if number == 0:
            writer.writerow(row)
        writer.writerow([escape_formulas(value) for value in row.values()])
    return file.getvalue(), "text/csv"


def _write_xlsx(export: TimelineExport) -> tuple[bytes, str]:
    """Write a workbook. All cells are texts, so that Excel does not convert any value."""
    file = io.BytesIO()
    book = xlsxwriter.Workbook(file, {"in_memory": True, "strings_to_formulas": False})
    sheet = book.add_worksheet()
    bold = book.add_format({"bold": True})
    for number, (name, value) in enumerate(export.head):
        sheet.write_string(number, 0, name, bold)
        sheet.write_string(number, 1, value[:MAX_CELL_LETTERS])
    top = len(export.head) + 1
    for number, row in enumerate(_generate_rows(export), top + 1):
        for column, (name, value) in enumerate(row.items()):
            if number == top + 1:
                sheet.write_string(top, column, name, bold)
            sheet.write_string(number, column, value[:MAX_CELL_LETTERS])
    sheet.set_column(0, 9, 22)
    book.close()
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
    return file.getvalue(), kind


def _write_json(export: TimelineExport) -> tuple[str, str]:
    # Row by row: as text they take less memory than as objects.
    rows = b",".join(dumps(row) for row in _generate_rows(export))
    about = dumps(dict(export.head))
    return (b'{"about":%b,"changes":[%b]}' % (about, rows)).decode(), "application/json"


def _write_note(export: TimelineExport) -> tuple[str, str]:
    """Write a note for the bank's client, as plain text.

    The first line has the title of the document and the days of the first and the last version.
    Below it are one sentence for each change, the oldest first, and the lines of `export.head`
    without the address and the filter. Each sentence is on one line, even if a value has line
    breaks.

    Returns:
        The text, and its content type.
    """
    ends = [export.versions[index].updated_at for index in (-1, 0)] if export.versions else []
    days = dict.fromkeys(sentences.format_day(moment) for moment in ends)
    heading = ", ".join(filter(None, [export.title, " – ".join(days)]))
    sentences_ = [
        " ".join(sentence.splitlines())
        for version in reversed(export.versions)
        for sentence in sentences.describe_version(version, export.path)
    ]
    head = [f"{name}: {value}" for name, value in export.head[2:]]
    return "\n".join([" ".join(heading.splitlines()), "", *sentences_, "", *head, ""]), "text/plain"


FORMS: Final[Mapping[str, Callable[[TimelineExport], tuple[str | bytes, str]]]] = {
    "xlsx": _write_xlsx,
    "csv": _write_csv,
    "json": _write_json,
    "note": _write_note,
}
