"""GET changes: versions of all documents in a window of time."""

from history import timeline
from history.api import answers, describe
from history.api.answer_types import ChangedVersionAnswer, ChangesAnswer
from history.api.answers import AnswerFormat
from history.api.base_view import ApiRequest, ApiView
from history.api.parameters import explain_choices
from history.completeness import complete_to
from history.kinds.entities import BY_NAME, ENTITIES, EntityKind
from history.timeline import (
    BadParameterError,
    ChangesPage,
    ChangesQuery,
    HistoryReader,
    TimelineOrder,
)
from history.timeline.titles import fetch_application_titles


@describe.describe_call(
    "changes",
    "Versions of all documents in a window of time: by a person, by a service, or within an hour.",
    *describe.CHANGES,
    data=ChangesAnswer,
)
class ChangesView(ApiView):
    """GET changes"""

    expensive = True

    def make_answer(self, request: ApiRequest) -> ChangesAnswer:
        parameters, output = request.parameters, request.output
        entity = _read_entity(request)
        order = parameters.read_choice("order", TimelineOrder, TimelineOrder.DESC)
        promised = None
        if order is TimelineOrder.ASC:
            # Before the versions are read: what comes meanwhile is later.
            kinds = [entity] if entity else ENTITIES
            promised = complete_to.read_completeness(kinds).complete_to
        query = ChangesQuery(
            filters=request.make_filters(),
            entity=entity,
            order=order,
            page_size=request.read_page_size(),
            page_token=request.read_page_token(),
            include=output.include,
            complete_to=promised,
        )
        page = timeline.fetch_changes_page(request.reader, query)
        since, until = page.window
        versions = list_changed_versions(request.reader, page, output)
        return ChangesAnswer(
            from_=output.format_moment(since),
            to=output.format_moment(until),
            history=versions,
            complete=page.is_complete,
            damaged=answers.list_damaged(page.damaged),
            next_page_token=answers.make_page_token(page.next_token),
            completeness=request.make_completeness(),
            fallback=request.fallback,
        )


def _read_entity(request: ApiRequest) -> EntityKind | None:
    """Return the kind that the parameter `entity` names; None if it is not given."""
    name = request.parameters.read_text("entity")
    if name is not None and name not in BY_NAME:
        raise BadParameterError("entity", explain_choices(BY_NAME))
    return BY_NAME[name] if name else None


def list_changed_versions(
    reader: HistoryReader, page: ChangesPage, output: AnswerFormat
) -> list[ChangedVersionAnswer]:
    """Return the entries of a page, each with its application and the title of that."""
    applications = {
        version.product_instance_id or version.id
        for version in page.versions
        if not version.entity.alone
    }
    titles = fetch_application_titles(reader, applications)
    return [_make_entry(version, titles, output) for version in page.versions]


def _make_entry(
    version: timeline.Version, titles: dict[str, str], output: AnswerFormat
) -> ChangedVersionAnswer:
    application = None if version.entity.alone else version.product_instance_id or version.id
    return ChangedVersionAnswer(
        **answers.copy_members(answers.make_version(version, output)),
        application_id=application,
        application_title=titles.get(application) if application is not None else None,
    )
