"""The screen of the journal, for the privacy officer: newest first, filtered, as CSV."""

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
from annals.access.journal.entry import QUARANTINE
from annals.access.journal.read import COLUMNS, Filters, Place, cell, lines
from annals.access.journal.words import Action, Outcome
from history.admin.parts.cards import title
from history.admin.parts.filter_form import MOMENTS, MomentField, Zoned
from history.admin.parts.links import PAGE, pages
from history.entities import ENTITIES, Entity
from history.requests.worker_shares import Share

PAGE_SIZE: Final = 100
NAME: Final = "admin:journal"
_ANY: Final = [("", _("any"))]
# The last line of a file that ends too early; the connection is reset after it.
NOT_COMPLETE: Final = "NOT COMPLETE"


class FilterForm(Zoned):
    """All fields optional. A date alone as the end includes that day."""

    login = forms.CharField(label=_("Login"), required=False, max_length=150)
    application = forms.CharField(label=_("Application"), required=False, max_length=200)
    entity = forms.ChoiceField(label=_("Kind"), required=False)
    id = forms.CharField(label=_("Id"), required=False, max_length=200)
    action = forms.ChoiceField(label=_("Action"), required=False, choices=_ANY + Action.choices)
    outcome = forms.ChoiceField(label=_("Outcome"), required=False, choices=_ANY + Outcome.choices)
    since = MomentField(label=_("From"), required=False, input_formats=MOMENTS)
    until = MomentField(label=_("To"), required=False, input_formats=MOMENTS)

    def __init__(self, data: Any) -> None:
        super().__init__(data)
        kinds = [(entity.name, title(entity)) for entity in ENTITIES]
        field: Any = self.fields["entity"]
        field.choices = [*_ANY, *kinds, (QUARANTINE, Action.QUARANTINE.label)]
        self.is_valid()

    def clean(self) -> None:
        """Adds the bounds as moments: begin and end."""
        begin, end = self.bounds("since", "until")
        if end and ":" not in self.data["until"]:
            with suppress(OverflowError):  # no day comes after it
                end += timedelta(days=1)
        self.cleaned_data |= {"begin": begin, "end": end}

    @property
    def refused(self) -> str:
        """What to say of the fields that are wrong; empty where none is."""
        wrong = [str(self.fields[name].label) for name in self.errors]
        text = gettext("Wrong, and not used: {conditions}. The filter says what is wrong.")
        return text.format(conditions=", ".join(wrong)) if wrong else ""

    @property
    def given(self) -> dict[str, str]:
        """The valid fields that are not empty, as query parameters."""
        used = [name for name in self.data if name in self.fields and self.cleaned_data.get(name)]
        return {name: self.data[name] for name in used}

    def filters(self) -> Filters:
        """A field that is wrong does not filter; the form says what is wrong with it."""
        found = self.cleaned_data
        names = ("login", "application", "entity", "action", "outcome")
        return Filters(
            entity_id=found.get("id", ""),
            since=found["begin"],
            until=found["end"],
            **{name: found.get(name, "") for name in names},
        )


def page(request: HttpRequest) -> HttpResponseBase:
    """A page of the journal; with ?format=csv all rows of the filter, if nothing in it is wrong: a
    file does not say that it has more than was asked for."""
    form = FilterForm(request.GET)
    as_csv = request.GET.get("format") == "csv"
    if as_csv and not form.errors:
        return download(form.filters(), request.user.pk)
    token = request.GET.get(PAGE, "")
    place = _place(token)
    found = read.page(form.filters(), PAGE_SIZE + 1, place)
    more = len(found) > PAGE_SIZE
    shown = found[:PAGE_SIZE]
    address = reverse(NAME)
    older = _token(shown[-1].pk) if more else None
    return render(
        request,
        "access/journal.html",
        {
            **admin.site.each_context(request),
            **pages(request, address, form.given, token if place else None, older),
            "title": _("Access journal"),
            "form": form,
            "lines": list(lines(shown)),
            "address": address,
            "csv_url": ""
            if form.errors
            else f"{address}?{urlencode({**form.given, 'format': 'csv'})}",
        },
        status=400 if as_csv else 200,
    )


def address_for(entity: Entity, id: str) -> str:
    """The looks at an entity; of an application, those at its children too."""
    parameter = "application" if entity.root else "id"
    return f"{reverse(NAME)}?{urlencode({parameter: id})}"


def _token(place: Place) -> str:
    return f"{place[0].astimezone(UTC).isoformat()}~{place[1]}"


def _place(token: str) -> Place | None:
    """A token that is not one gives the first page."""
    at, _sep, id = token.partition("~")
    try:
        moment = datetime.fromisoformat(at)
        return (moment.astimezone(UTC), uuid.UUID(id)) if moment.tzinfo else None
    except (ValueError, OverflowError):
        return None


def download(filters: Filters, login: object) -> StreamingHttpResponse:
    """Return all rows of the filter as a file. It may be read slowly, and keeps a thread meanwhile:
    one download of a login, and two in all, run in a process.

    Raises:
        BusyError: at once, while others run.
    """
    with ExitStack() as stack:
        stack.enter_context(_downloads.taken(login))
        made = _Download(_text(filters), content_type="text/csv; charset=utf-8")
        made.place = stack.pop_all()
    made.headers["Content-Disposition"] = 'attachment; filename="annals-journal.csv"'
    return made


_downloads: Final = Share(2, waiting=0)


class _Download(StreamingHttpResponse):
    """Has its place until its last byte, or until it ends early."""

    place: ExitStack

    def close(self) -> None:
        self.place.close()
        super().close()


class _Echo:
    """A file for the csv module that gives back what is written."""

    def write(self, text: str) -> str:
        return text


def _text(filters: Filters) -> Iterator[str]:
    """The lines. Raises what the database raises, after a last line that says that the file is not
    complete."""
    writer = csv.writer(_Echo())
    yield "\N{ZERO WIDTH NO-BREAK SPACE}" + writer.writerow(COLUMNS)  # so Excel reads UTF-8
    try:
        for row in read.rows(filters):
            yield writer.writerow([cell(row, name) for name in COLUMNS])
    except Exception:
        yield writer.writerow([NOT_COMPLETE])
        raise
