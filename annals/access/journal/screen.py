"""The screen on which the privacy officer reads the access journal.

It shows the newest entries first, filters them, and exports them as CSV.
"""

import csv
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode

from django import forms
from django.contrib import admin
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from annals.access.journal import read
from annals.access.journal.actions import AccessAction, AccessOutcome
from annals.access.journal.entry import QUARANTINE
from annals.access.journal.read import (
    COLUMNS,
    JournalFilters,
    JournalPosition,
    format_cell,
    generate_lines,
)
from history.admin.components.cards import get_kind_title
from history.admin.components.filter_form import MOMENT_FORMATS, MomentField, ZonedForm
from history.admin.components.links import PAGE, build_page_urls
from history.common.worker_shares import PlacePool
from history.kinds.entities import ENTITIES, EntityKind

PAGE_SIZE: Final = 100
NAME: Final = "admin:journal"
_ANY: Final = [("", _("any"))]
# The last line of an exported file that is not complete because the database failed. After this
# line, the connection is reset.
NOT_COMPLETE: Final = "NOT COMPLETE"


class JournalFilterForm(ZonedForm):
    """The filter of the journal. All fields are optional.

    If `until` has no time of day, its whole day is included.
    """

    login = forms.CharField(label=_("Login"), required=False, max_length=150)
    application = forms.CharField(label=_("Application"), required=False, max_length=200)
    entity = forms.ChoiceField(label=_("Kind"), required=False)
    id = forms.CharField(label=_("Id"), required=False, max_length=200)
    action = forms.ChoiceField(
        label=_("Action"), required=False, choices=_ANY + AccessAction.choices
    )
    outcome = forms.ChoiceField(
        label=_("Outcome"), required=False, choices=_ANY + AccessOutcome.choices
    )
    since = MomentField(label=_("From"), required=False, input_formats=MOMENT_FORMATS)
    until = MomentField(label=_("To"), required=False, input_formats=MOMENT_FORMATS)

    def __init__(self, data: Any) -> None:
        super().__init__(data)
        kinds = [(entity.name, get_kind_title(entity)) for entity in ENTITIES]
        field: Any = self.fields["entity"]
        field.choices = [*_ANY, *kinds, (QUARANTINE, AccessAction.QUARANTINE.label)]
        self.is_valid()

    def clean(self) -> None:
        """Add the bounds of the period as the moments `begin` and `end`."""
        begin, end = self.get_bounds("since", "until")
        if end and ":" not in self.data["until"]:
            with suppress(OverflowError):  # 9999-12-31 has no next day
                end += timedelta(days=1)
        self.cleaned_data |= {"begin": begin, "end": end}

    @property
    def wrong_fields_notice(self) -> str:
        """A sentence that names the wrong fields. Empty if all are valid."""
        wrong = [str(self.fields[name].label) for name in self.errors]
        text = gettext("Wrong, and not used: {conditions}. The filter says what is wrong.")
        return text.format(conditions=", ".join(wrong)) if wrong else ""

    @property
    def used_parameters(self) -> dict[str, str]:
        """The query parameters of the valid fields that are not empty."""
        used = [name for name in self.data if name in self.fields and self.cleaned_data.get(name)]
        return {name: self.data[name] for name in used}

    def to_filters(self) -> JournalFilters:
        """Return the conditions of the valid fields."""
        values = self.cleaned_data
        names = ("login", "application", "entity", "action", "outcome")
        return JournalFilters(
            entity_id=values.get("id", ""),
            since=values["begin"],
            until=values["end"],
            **{name: values.get(name, "") for name in names},
        )


def show_journal(request: HttpRequest) -> HttpResponseBase:
    """Show a page of the journal. With ?format=csv, send all entries that match the filter.

    The page ignores a wrong condition of the filter and says so. A file could not say so. So with
    a wrong condition, the page is shown instead of a file.
    """
    form = JournalFilterForm(request.GET)
    as_csv = request.GET.get("format") == "csv"
    if as_csv and not form.errors:
        return download_entries(form.to_filters(), request.user.pk)
    token = request.GET.get(PAGE, "")
    position = _decode_position(token)
    entries = read.fetch_page(form.to_filters(), PAGE_SIZE + 1, position)
    has_more = len(entries) > PAGE_SIZE
    page_entries = entries[:PAGE_SIZE]
    address = reverse(NAME)
    older = _encode_position(page_entries[-1].pk) if has_more else None
    return render(
        request,
        "access/journal.html",
        {
            **admin.site.each_context(request),
            **build_page_urls(
                request, address, form.used_parameters, token if position else None, older
            ),
            "title": _("Access journal"),
            "form": form,
            "lines": list(generate_lines(page_entries)),
            "address": address,
            "csv_url": ""
            if form.errors
            else f"{address}?{urlencode({**form.used_parameters, 'format': 'csv'})}",
        },
        status=400 if as_csv else 200,
    )


def build_journal_url(entity: EntityKind, id: str) -> str:
    """Return the address of the journal's entries about a document.

    For an application, these include the entries about its children.
    """
    parameter = "application" if entity.root else "id"
    return f"{reverse(NAME)}?{urlencode({parameter: id})}"


def _encode_position(position: JournalPosition) -> str:
    moment, id = position
    return f"{moment.astimezone(UTC).isoformat()}~{id}"


def _decode_position(token: str) -> JournalPosition | None:
    """Return the position in a page token, or None (the first page) if the token is invalid."""
    time, _sep, id = token.partition("~")
    try:
        moment = datetime.fromisoformat(time)
        return (moment.astimezone(UTC), uuid.UUID(id)) if moment.tzinfo else None
    except (ValueError, OverflowError):
        return None


def download_entries(filters: JournalFilters, login: object) -> StreamingHttpResponse:
    """Return all entries that fit the filter as a CSV file.

    A client that reads slowly occupies a thread. So a process sends at most two files at a time,
    and at most one to the same login.

    Raises:
        BusyError: Other downloads are running. The function does not wait for them.
    """
    with ExitStack() as stack:
        stack.enter_context(_downloads.take_place(login))
        response = _DownloadResponse(_generate_csv(filters), content_type="text/csv; charset=utf-8")
        response.place = stack.pop_all()
    response.headers["Content-Disposition"] = 'attachment; filename="annals-journal.csv"'
    return response


_downloads: Final = PlacePool(2, waiting=0)


class _DownloadResponse(StreamingHttpResponse):
    """A streamed file that occupies one of the two places for downloads until it is closed."""

    place: ExitStack

    def close(self) -> None:
        self.place.close()
        super().close()


class _EchoFile:
    """A file for the csv module whose `write` returns the text."""

    def write(self, text: str) -> str:
        return text


def _generate_csv(filters: JournalFilters) -> Iterator[str]:
    """Generate the lines of the file.

    Raises:
        django.db.Error: The database fails. The line NOT_COMPLETE is generated before the error.
    """
    writer = csv.writer(_EchoFile())
    yield "\N{ZERO WIDTH NO-BREAK SPACE}" + writer.writerow(COLUMNS)  # so Excel reads UTF-8
    try:
        for row in read.iterate_entries(filters):
            yield writer.writerow([format_cell(row, name) for name in COLUMNS])
    except Exception:
        yield writer.writerow([NOT_COMPLETE])
        raise
