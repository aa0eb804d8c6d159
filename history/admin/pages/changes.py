"""The page of changes of all documents, and the page of a person."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from itertools import groupby
from typing import Any, Final, NamedTuple

from django import forms
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from history import timeline
from history.admin.components import gaps, links
from history.admin.components.cards import CardBuilder, get_kind_title
from history.admin.components.filter_form import (
    CONDITIONS,
    FilterForm,
    describe_span,
    sort_by_name,
)
from history.admin.components.links import PAGE, build_page_urls
from history.admin.pages.permission import require_history_permission
from history.admin.reading_aids import activity, timeline_export
from history.admin.reading_aids.picture import DayBar, draw_day_bars
from history.common import clock
from history.common.worker_shares import mark_expensive
from history.completeness import complete_to
from history.kinds.entities import BY_NAME, ENTITIES
from history.policy import masking, need_to_know
from history.store.catalogue import people
from history.store.quarantined_messages import NO_OPEN_MESSAGES
from history.timeline import (
    ChangesPage,
    ChangesQuery,
    HistoryReader,
    Include,
    TimelinePage,
    VersionFilters,
    absence,
)
from history.timeline.changes import MAX_SPAN_WITHOUT_MAKER
from history.timeline.titles import fetch_application_titles

PAGE_SIZE: Final = 50
SUMMARY_FIELDS: Final = 4  # named in the line of a version
SHOWN: Final = frozenset({Include.CHANGES})


class ChangesForm(FilterForm):
    """The conditions of a list of changes: the conditions of a timeline, and the kind."""

    conditions = (*CONDITIONS, "entity")
    entity = forms.ChoiceField(label=gettext_lazy("Kind"), required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, kinds=ENTITIES, **kwargs)
        kinds = [(kind.name, get_kind_title(kind)) for kind in ENTITIES]
        self.fields["entity"].choices = [("", _("any kind")), *kinds]  # type: ignore[attr-defined]
        self.order_fields(["author", "clientId", "from", "to", "entity", "type", "path", "tz"])


@require_history_permission
@mark_expensive
def show_changes(request: HttpRequest, reader: HistoryReader) -> HttpResponse:
    """Show the changes of all documents that match the filter, newest first.

    With ?as= the page is sent as a file.
    """
    form = ChangesForm(request.GET)
    # Read before the versions, so that the page has every version up to this moment.
    completeness = complete_to.read_completeness(ENTITIES)
    address = links.build_changes_url({})
    token = request.GET.get(PAGE) or None
    page, token, notes = _read_page(reader, form, token)
    parameters = form.get_parameters()
    chips = form.make_chips(address)
    versions = page.versions if page else ()
    if page and timeline_export.FORM_PARAMETER in request.GET and not notes:
        shown_page = TimelinePage(versions, page.next_token, page.damaged)
        about = timeline_export.describe_export(
            request, form, shown_page, completeness, NO_OPEN_MESSAGES, page.span
        )
        export = timeline_export.TimelineExport(
            "changes", _("Changes"), about, versions, form.to_filters().path, NO_OPEN_MESSAGES
        )
        return timeline_export.make_response(export, request.GET[timeline_export.FORM_PARAMETER])
    filters = form.to_filters()
    builder = CardBuilder(
        maker_filter=links.build_day_url,
        merged=True,
        path=filters.path,
        unmask=masking.has_explicit_permission(request.user, masking.UNMASK),
        titles=_load_titles(reader, page),
    )
    author = people.fetch_named_logins([filters.author]).get(filters.author or "")
    if need_to_know.is_rule_applied(reader.viewer):
        author = None  # the page of a person counts nothing for this viewer
    return render(
        request,
        "history/all_changes.html",
        {
            **admin.site.each_context(request),
            **build_page_urls(
                request, address, parameters, token, page.next_token if page else None
            ),
            "title": _("Changes"),
            "complete": completeness,
            "subject": {"url": address},
            "form": form,
            "notes": notes,
            "chips": chips,
            "shared_url": form.build_shared_url(request),
            "files": timeline_export.list_file_links(address, parameters, token)[:-1]
            if versions
            else [],
            "steps": _list_time_steps(form),
            "matching_fields": [
                (name, path, links.build_timeline_url_for_path(address, path, parameters))
                for name, path in form.matching_fields
            ],
            "days": _group_by_day(builder.build_cards(versions)),
            "empty": "" if versions else _explain_empty(form, page, bool(notes)),
            "cut": bool(page and not page.is_complete),
            "author": author,
            "author_url": links.build_person_url(author.login) if author else "",
            "known_authors": sort_by_name(version.author for version in versions),
            "known_services": sort_by_name(version.service for version in versions),
        },
    )


class _FetchedChanges(NamedTuple):
    """The result of reading the page of changes that a request asks for."""

    page: ChangesPage | None  # None if the conditions do not allow one
    token: str | None  # the token that was used
    notes: list[str]  # for the viewer, on wrong conditions or a wrong token


def _read_page(reader: HistoryReader, form: ChangesForm, token: str | None) -> _FetchedChanges:
    """Read the page that the form and the token ask for."""
    notes: list[str] = []
    reader.viewer.access.is_one_entry = True
    while True:
        filters = form.to_filters()
        if form.refused:
            text = _("Wrong: {conditions}. The filter says what is wrong.")
            notes.append(text.format(conditions=", ".join(form.refused)))
            return _FetchedChanges(None, None, notes)
        if not form.applied:
            return _FetchedChanges(None, None, [])
        kind = form.cleaned_data.get("entity")
        query = ChangesQuery(
            filters=_extend_to_retention(filters),
            entity=BY_NAME[kind] if kind else None,
            page_size=PAGE_SIZE,
            page_token=token,
            include=SHOWN,
        )
        try:
            page = timeline.fetch_changes_page(reader, query)
            return _FetchedChanges(page, token, notes)
        except timeline.OlderThanRetentionError:
            notes.append(gaps.explain_retention(filters.until))
            return _FetchedChanges(None, None, notes)
        except timeline.BadParameterError as error:
            if error.name == "author":
                notes.append(_("Without a person or a service the time must be at most an hour."))
                return _FetchedChanges(None, None, notes)
            if error.name == "from":
                notes.append(
                    gaps.explain_retention(filters.until)
                    or _("The time begins in the future: nothing has changed there yet.")
                )
                return _FetchedChanges(None, None, notes)
            if error.name == "path" and form.refuse_condition("path"):
                continue
            if token is None:
                notes.append(str(error))
                return _FetchedChanges(None, None, notes)
            notes.append(_("The page in the address is not valid. The newest versions are shown."))
            token = None


def _extend_to_retention(filters: VersionFilters) -> VersionFilters:
    """Let filters that name a person or a service begin with the first day of retention.

    Filters that already have a beginning, or name neither, are returned unchanged.
    """
    if filters.since is not None or (filters.author is None and filters.client_id is None):
        return filters
    return VersionFilters(
        since=absence.get_retention_start(),
        until=filters.until,
        author=filters.author,
        client_id=filters.client_id,
        type=filters.type,
        path=filters.path,
    )


def _load_titles(reader: HistoryReader, page: ChangesPage | None) -> dict[str, str]:
    """Return the titles of a page's applications by id. A missing title is replaced by the id."""
    versions = page.versions if page else ()
    applications = {
        version.product_instance_id or version.id
        for version in versions
        if not version.entity.is_standalone
    }
    return {id: id for id in applications} | fetch_application_titles(reader, applications)


def _group_by_day(cards: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Group cards by day, and the cards of a day by document. `cards` are in order of time.

    Returns:
        For each day: `day`, its name; `documents`, the results of _describe_document.
    """
    days = []
    for day, day_cards in groupby(
        cards, lambda card: timezone.localdate(card["version"].updated_at)
    ):
        documents: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for card in day_cards:
            version = card["version"]
            documents.setdefault((version.entity.name, version.id), []).append(card)
        days.append(
            {
                "day": f"{date_format(day, 'l')}, {date_format(day, _('j F Y'))}",
                "documents": [_describe_document(group) for group in documents.values()],
            }
        )
    return days


def _describe_document(cards: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the template's variables for one document on one day.

    Args:
        cards: The cards of the document's versions on that day.

    Returns:
        `cards`: Each card, with a summary of the changed fields. The other variables are for the
        heading of the document.
    """
    first, version = cards[0], cards[0]["version"]
    application = first.get("application", "")
    name = first.get("subject_name") or ("" if version.entity.parent else application)
    return {
        "kind": first.get("subject", ""),
        "name": name or version.id,
        "application": application if version.entity.parent else "",
        "url": links.build_landing_url(version.entity, version.id),
        "cards": [(card, _summarize_fields(card)) for card in cards],
    }


def _summarize_fields(card: Mapping[str, Any]) -> str:
    """Return the names of the first fields that a version changed, and how many more there are."""
    # An item of a list has its own text as its label: the name of the list says more.
    names = {
        _get_field(row.path): row.trail[-1] if row.item and row.trail else row.label
        for row in card["rows"]
    }
    shown_names = list(dict.fromkeys(names.values()))[:SUMMARY_FIELDS]
    if not shown_names:
        return str(card["count_text"])
    # The card has rows only for some of the changes.
    fields = {
        _get_field(labelled.change.path)
        for labelled in card["version"].changes
        if not labelled.technical
    }
    more = sum(names.get(field) not in shown_names for field in fields)
    text = ", ".join(shown_names)
    return f"{text} +{more}" if more else text


def _get_field(path: str) -> str:
    """Return a path without the positions of list items.

    So a field has the same path in all items of a list.
    """
    steps = ["*" if step.isdecimal() else step for step in path.split("/")]
    while steps[-1] == "*":
        steps.pop()
    return "/".join(steps)


def _list_time_steps(form: ChangesForm) -> list[tuple[str, str]]:
    """Return links to the list of changes for other spans, as pairs of text and address.

    There are links only if the form names neither a person nor a service: then the span of the list
    is limited to an hour. If the form has a span of at most an hour, the links are to the spans
    before and after it. If the span is longer or has no end, there is a link to its first hour; if
    the span has no start, to its last hour. If the form has no span, there is a link to the last
    hour before now. If a condition of the form is wrong, there are no links.
    """
    filters = form.to_filters()
    if filters.author or filters.client_id or form.refused:
        return []
    since, until = filters.since, filters.until
    if since is None and until is None:
        now = clock.now()
        return [(_("the last hour"), _build_span_url(form, now - MAX_SPAN_WITHOUT_MAKER, now))]
    if since and until and timedelta() < until - since <= MAX_SPAN_WITHOUT_MAKER:
        width = until - since
        return [
            (_("← earlier"), _build_span_url(form, since - width, since)),
            (_("later →"), _build_span_url(form, until, until + width)),
        ]
    since = since or (until - MAX_SPAN_WITHOUT_MAKER if until else clock.now())
    return [
        (
            _("show one hour of this time"),
            _build_span_url(form, since, since + MAX_SPAN_WITHOUT_MAKER),
        )
    ]


def _build_span_url(form: ChangesForm, since: datetime, until: datetime) -> str:
    """Return the address of the page for this span, with the other conditions of the form."""
    zone = form.fields["from"].zone  # type: ignore[attr-defined]
    bounds = {"from": since, "to": until}
    texts = {
        name: f"{moment.astimezone(zone):%d.%m.%Y %H:%M:%S}" for name, moment in bounds.items()
    }
    return links.build_changes_url({**form.get_parameters(), **texts, "tz": str(zone)})


def _explain_empty(form: ChangesForm, page: ChangesPage | None, is_noted: bool) -> str:
    """Return a sentence on why the list is empty.

    Returns "" if no changes were read and `is_noted` is true: then a note on the page already says
    why the list is empty.
    """
    if page is None:
        if is_noted:
            return ""
        return _("Enter a person or a service, or a time of at most an hour.")
    looked_at = _("Looked at: {window}.").format(window=describe_span(*page.span))
    if page.next_token:
        text = _("Nothing was found up to here. The search can go on among older ones.")
    elif form.unknown_names:
        text = _(
            "The list of people and services has no name or login “{name}”, and no version of "
            "this time that fits the filter has this login."
        ).format(name=form.unknown_names[0])
    else:
        sentences = [_("Nothing changed in this time that fits the filter."), *form.misplaced_names]
        if form.to_filters().until is None:
            sentences.append(
                _(
                    "The time ends now: for versions with a later time enter a later one in"
                    " “Before”."
                )
            )
        text = " ".join(sentences)
    return f"{text} {looked_at}"


@require_history_permission
@mark_expensive
def show_person(request: HttpRequest, reader: HistoryReader, login: str) -> HttpResponse:
    """Show a person: the name, the first and last change, the days of activity, the services."""
    login = login.replace("\0", "")
    person = people.fetch_named_logins([login])[login]
    zone_name = timezone.get_current_timezone_name()
    counted = timeline.fetch_person_activity(reader, login, zone_name)
    changes_url = links.build_changes_url({"author": login})
    context: dict[str, object] = {}
    if counted is not None:
        context = {
            "first": counted.first,
            "last": counted.last,
            "services": [
                (
                    service,
                    count,
                    links.build_changes_url({"author": login, "clientId": service.login}),
                )
                for service, count in counted.services
            ],
            "is_whole": counted.is_whole,
            **_draw_days(counted, changes_url),
        }
    return render(
        request,
        "history/person.html",
        {
            **admin.site.each_context(request),
            "complete": complete_to.read_completeness(ENTITIES),
            "title": person.name,
            "person": person,
            "is_counted": counted is not None,
            "changes_url": changes_url,
            **context,
        },
    )


def _draw_days(counted: timeline.PersonActivity, address: str) -> dict[str, object]:
    """Return the template's variables for the picture of the days on which a person was active.

    A timeline has the same picture (see history.admin.reading_aids.activity).
    """
    if not counted.days:
        return {}
    kinds = [kind for kind in ENTITIES if any(kind in counts for counts in counted.days.values())]
    days = []
    for day, counts in sorted(counted.days.items()):
        total = sum(counts.values())
        words = ngettext("{n} version", "{n} versions", total).format(n=total)
        text = f"{_format_day(day)}: {words}"
        days.append(
            DayBar(day, [counts.get(kind, 0) for kind in kinds], _build_day_url(address, day), text)
        )
    first, last = days[0].day, days[-1].day
    return {
        "picture": draw_day_bars(days, first, last) if len(days) > 1 else "",
        "picture_ends": [_format_day(first), _format_day(last)],
        "picture_days": days[::-1][: activity.MOST_ROWS],
        "picture_kinds": [get_kind_title(kind) for kind in kinds],
    }


def _build_day_url(address: str, day: date) -> str:
    following = day + timedelta(days=1)
    zone_name = timezone.get_current_timezone_name()
    return f"{address}&from={day:%d.%m.%Y}&to={following:%d.%m.%Y}&tz={zone_name}"


def _format_day(day: date) -> str:
    return date_format(day, _("j F Y"))
