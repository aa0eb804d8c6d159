"""The page with an application and its children as they were at a moment."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, TypeAlias

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from history import timeline
from history.admin.components import (
    gaps,
    links,
    open_messages,
    page_completeness,
    page_head,
)
from history.admin.components.cards import get_kind_title, make_field_names
from history.admin.components.change_rows import make_change_rows, order_changes
from history.admin.components.filter_form import MomentForm
from history.admin.components.headline import (
    NamedDocument,
    RenderBudget,
    find_shared_names,
)
from history.admin.components.page_head import MOST_PARTS
from history.admin.components.values import make_items
from history.admin.pages.permission import require_history_permission
from history.admin.reading_aids import activity
from history.common import clock
from history.common.worker_shares import mark_expensive
from history.diff import ValueChange
from history.documents.record import ChangeType
from history.kinds.entities import get_root
from history.store.quarantined_messages import QuarantinedMessage
from history.timeline import (
    Absence,
    ApplicationState,
    HistoryReader,
    MissingPart,
    OlderThanRetentionError,
    Version,
)
from history.timeline.titles import get_headline
from history.timeline.version_index import VersionIndex

MOST_ROWS = 30  # how many differences of a part are shown


@require_history_permission
@mark_expensive
def show_moment(request: HttpRequest, reader: HistoryReader, id: str) -> HttpResponse:
    """Show an application as of ?time=, by default now. If it did not exist then, answer 404.

    A ?time= without an offset is in the time zone ?tz=.
    """
    form = MomentForm(request.GET if "time" in request.GET else None)
    is_valid = form.is_valid()
    note = ""
    try:
        moment = form.cleaned_data["at"] if is_valid else clock.now()
        state = timeline.fetch_application_at(reader, id, moment, MOST_PARTS)
    except timeline.NotFoundError as error:
        try:  # it may be there at another moment
            state = timeline.fetch_application_at(reader, id, clock.now(), MOST_PARTS)
        except timeline.NotFoundError:
            raise error from None
        note = f"{_explain_empty_page(error)} {gaps.explain_retention(moment)}".rstrip()
    empty = note or (form.is_bound and not is_valid)
    compared = is_valid and not empty
    today = (
        timeline.fetch_application_at(reader, id, clock.now(), MOST_PARTS, state.members)
        if compared
        else None
    )
    days = activity.link_days_to_moments(links.build_moment_url(id))
    context = {
        **page_head.make_context(
            request,
            reader,
            get_root(),
            id,
            state.application,
            tab="at",
            is_past=compared,
            today=today.application if today else None,
        ),
        "form": form,
        "action": links.build_moment_url(id),
        "now": not form.is_bound,
        "requested_moment": moment if compared else None,
        "parts": []
        if empty
        else _make_parts(state, today, _find_messages_of_parts(request, reader, state, moment)),
        "later": _list_later_children(state, today),
        **activity.make_activity_context(reader, get_root(), id, days, state.members),
        "hidden": 0 if empty else state.unread,
        "notes": [note]
        if note
        else []
        if empty
        else [_explain_missing_part(part) for part in state.missing],
    }
    return render(request, "history/moment.html", context, status=404 if note else 200)


def _explain_empty_page(error: timeline.NotFoundError) -> str:
    """Return a sentence on why the page is empty although the application is in the store."""
    if error.reason is Absence.UNKNOWN:
        return _(
            "The versions of that moment are not in the store: removed by age, or never arrived."
        )
    if error.reason is Absence.ARCHIVED:
        text = _("The versions of that moment may be in the archive. {ask}")
        return text.format(ask=gaps.get_archive_hint())
    if isinstance(error, OlderThanRetentionError):
        return _("The versions of that moment were removed: they are past the days that are kept.")
    if error.reason is None:
        return _("{kind}: did not exist yet at that moment.").format(
            kind=get_kind_title(get_root())
        )
    return _("The version of that moment never arrived.")


def _list_versions(state: ApplicationState) -> tuple[Version, ...]:
    """Return the application, its children by kind, and the children deleted before the moment."""
    application = [state.application] if state.application else []
    return (*application, *state.children, *state.deleted)


# The messages that may have changed the state of each part, by kind and id.
MessagesOfParts: TypeAlias = Mapping[tuple[str, str], Sequence[QuarantinedMessage]]


def _find_messages_of_parts(
    request: HttpRequest, reader: HistoryReader, state: ApplicationState, moment: datetime
) -> MessagesOfParts:
    messages = page_completeness.get_completeness(request).load_messages(reader).messages
    keys = {
        entity_ref: VersionIndex(keys_of_part) for entity_ref, keys_of_part in state.members.items()
    }
    messages_of_parts: defaultdict[tuple[str, str], list[QuarantinedMessage]] = defaultdict(list)
    for message in timeline.select_open_at(messages, moment, keys):
        messages_of_parts[message.entity, message.id].append(message)
    return messages_of_parts


def _make_parts(
    state: ApplicationState, today: ApplicationState | None, messages: MessagesOfParts
) -> list[dict[str, object]]:
    """Return the template's variables for each part: the application and its children.

    Args:
        state: The application at the moment of the page.
        today: The application now, to compare each part with. None: nothing is compared.
        messages: The messages in quarantine that may have changed each part.
    """
    budget = RenderBudget()
    newest_versions = (
        {version.entity_ref: version for version in _list_versions(today)} if today else {}
    )
    shared_names = find_shared_names(
        NamedDocument(version.entity.name, _get_name(version), version.id)
        for version in _list_versions(state)
    )
    return [
        _make_part(version, budget)
        | {"has_unique_name": (version.entity.name, _get_name(version)) not in shared_names}
        | _compare_with_today(version, newest_versions.get(version.entity_ref), budget)
        | _describe_gap(
            state.following.get(version.entity_ref),
            messages.get((version.entity.name, version.id), ()),
        )
        for version in _list_versions(state)
    ]


def _describe_gap(
    following: Version | None, messages: Sequence[QuarantinedMessage]
) -> dict[str, object]:
    """Return the notice that the shown state of a document is uncertain, as versions are missing.

    Args:
        following: The first stored version after the missing versions. None: the store has all
            versions.
        messages: The messages in quarantine that could have changed the document before the moment
            that the page shows.

    Returns:
        The template's variables. Empty if no version is missing and there are no messages.
    """
    sentences = list(gaps.describe_arrived(following)) if following else []
    described = following.quarantined if following else {}
    other_messages = [
        message
        for message in messages
        if message.version is None or message.version not in described
    ]
    sentences += open_messages.HTML.describe_first_messages(
        other_messages, open_messages.HTML.describe_message, has_more=False
    )
    if following is None and not sentences:
        return {}
    missing = (gaps.explain_missing(following) if following else "") or _(
        "Not all versions are in the store"
    )
    text = _("{missing}: the state at this moment may have been different.")
    return {"messages": sentences, "gap": text.format(missing=missing)}


def _compare_with_today(
    version: Version, today: Version | None, budget: RenderBudget
) -> dict[str, object]:
    """Return the template's variables on how a version differs from the current version.

    `same` says that it is the current version. `rows` are the differences, and `note` counts the
    differences without a row.

    Args:
        today: The version that is current now. None: nothing is compared, the result is empty.
    """
    if today is None:
        return {}
    key, newest_key = (
        (shown_version.version, shown_version.updated_at) for shown_version in (version, today)
    )
    if key == newest_key:
        return {"same": True}
    entity, id = version.entity, version.id

    def link(change: ValueChange) -> str:
        return links.build_field_url(entity, id, change.key_path)

    context: dict[str, object] = {
        "compare_url": links.build_comparison_url(entity, id, key, newest_key)
    }
    if today.type is ChangeType.DELETE:
        return context | {"gone": version.type is not ChangeType.DELETE}
    if version.snapshot and today.snapshot:
        changes = order_changes(timeline.compare_snapshots(version, today))
        rows = make_change_rows(
            changes, today.data, make_field_names(entity, budget), link, MOST_ROWS
        )
        context |= {"rows": rows.plain, "note": rows.note, "technical": not rows.plain}
    return context


class LaterChild(NamedTuple):
    """A child that was created after the moment of the page."""

    kind: str
    name: str  # with the id, if several children have this name
    url: str


def _list_later_children(
    state: ApplicationState, today: ApplicationState | None
) -> list[LaterChild]:
    """Return the first MOST_ROWS children that were created after the moment."""
    shown_ids = {(child.entity.name, child.id) for child in _list_versions(state)}
    shown_ids |= {(child.entity.name, child.id) for child in state.missing}
    children = today.children if today else ()
    later = [child for child in children if (child.entity.name, child.id) not in shown_ids]
    shared_names = find_shared_names(
        NamedDocument(child.entity.name, _get_name(child), child.id) for child in children
    )
    rows = []
    for child in later[:MOST_ROWS]:
        name = _get_name(child)
        if (child.entity.name, name) in shared_names:
            name = f"{name} {child.id}"
        url = links.build_timeline_url(child.entity, child.id)
        rows.append(LaterChild(get_kind_title(child.entity), name, url))
    return rows


def _get_name(version: Version) -> str:
    return get_headline(version.data) or version.id


def _make_part(version: Version, budget: RenderBudget) -> dict[str, object]:
    """Return the template's variables for the application or a child.

    `items` are the fields of its snapshot. They are empty if the document was deleted before the
    moment, or if the budget of the page is used up.
    """
    entity, data = version.entity, version.data
    deleted = version.type is ChangeType.DELETE
    document = data if isinstance(data, dict) and not deleted else {}
    return {
        "version": version,
        "kind": get_kind_title(entity),
        "name": _get_name(version),
        "who": page_head.get_maker_name(version),
        "deleted": deleted,
        "items": make_items(document, make_field_names(entity, budget), "", 1),
        "url": links.build_timeline_url(entity, version.id),
        "snapshot_url": links.build_snapshot_url(
            entity, version.id, version.version, version.updated_at
        ),
    }


def _explain_missing_part(part: MissingPart) -> str:
    if part.reason is Absence.DAMAGED:
        text = _("{kind} {id}: the version of that moment is damaged and cannot be read.")
        return text.format(kind=get_kind_title(part.entity), id=part.id)
    text = (
        _("{kind} {id}: the version of that moment never arrived.")
        if part.reason is Absence.NEVER_ARRIVED
        else _("{kind} {id}: the version of that moment is not in the store.")
    )
    return text.format(kind=get_kind_title(part.entity), id=part.id)
