"""GET changes: versions of all documents in a span of time."""

from history import timeline
from history.api import answers, describe
from history.api.answer_types import ChangedVersionAnswer, ChangesAnswer
from history.api.answers import AnswerFormat
from history.api.base_view import ApiRequest, ApiView
from history.api.parameters import TOKEN_LENGTH
from history.timeline import (
    ChangesPage,
    ChangesQuery,
    HistoryReader,
    TimelineOrder,
)
from history.timeline.titles import fetch_application_titles


@describe.describe_call(
    "changes",
    "Versions of all documents in a span of time: by a person, by a service, or within an hour.",
    *describe.CHANGES,
    data=ChangesAnswer,
)
class ChangesView(ApiView):
    """GET changes: versions of all documents in a span of time."""

    expensive = True

    def make_answer(self, request: ApiRequest) -> ChangesAnswer:
        output = request.output
        query = ChangesQuery(
            filters=request.make_filters(),
            entity=request.read_kind(),
            order=request.parameters.read_choice("order", TimelineOrder, TimelineOrder.DESC),
            page_size=request.read_page_size(),
            page_token=request.read_page_token(),
            late_since=request.parameters.read_text("lateSince", TOKEN_LENGTH),
            include=output.include,
            complete_to=request.complete_to,
        )
        page = timeline.fetch_changes_page(request.reader, query)
        since, until = page.span
        versions = list_changed_versions(request.reader, page, output)
        return ChangesAnswer(
            from_=output.format_moment(since),
            to=output.format_moment(until),
            history=versions,
            complete=page.is_complete,
            damaged=answers.list_damaged(page.damaged),
            next_page_token=answers.make_page_token(page.next_token),
            completeness=request.make_completeness(versions),
            fallback=request.fallback,
        )


def list_changed_versions(
    reader: HistoryReader, page: ChangesPage, output: AnswerFormat
) -> list[ChangedVersionAnswer]:
    """Return the versions of a page, each with the id and title of its application."""
    applications = {
        version.product_instance_id or version.id
        for version in page.versions
        if not version.entity.is_standalone
    }
    titles = fetch_application_titles(reader, applications)
    return [_make_entry(version, titles, output) for version in page.versions]


def _make_entry(
    version: timeline.Version, titles: dict[str, str], output: AnswerFormat
) -> ChangedVersionAnswer:
    application = (
        None if version.entity.is_standalone else version.product_instance_id or version.id
    )
    return ChangedVersionAnswer(
        **answers.copy_members(answers.make_version(version, output)),
        application_id=application,
        application_title=titles.get(application) if application is not None else None,
    )
