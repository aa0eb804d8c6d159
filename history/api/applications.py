"""The views about a whole application, and the search."""

from django.utils.translation import gettext as _

from history import timeline
from history.api import answers, describe
from history.api.answer_types import (
    ApplicationAnswer,
    MissingDocument,
    SearchResultsAnswer,
    TimelineAnswer,
)
from history.api.base_view import ApiRequest, ApiView
from history.api.views import make_timeline
from history.kinds.entities import CHILDREN, SEARCH_VALUE_LENGTH
from history.timeline import BadParameterError, TimelineSort
from history.timeline.version_index import VersionIndex


@describe.describe_call(
    "applicationHistory",
    "One merged timeline of an application and its children.",
    describe.APPLICATION,
    *describe.PAGING,
    describe.BY_TIME,
    describe.ORDER,
    *describe.FILTERS,
    *describe.ANSWER_FORM,
    data=TimelineAnswer,
)
class ApplicationTimelineView(ApiView):
    """GET applications/{productInstanceId}/history: the timeline of an application."""

    expensive = True

    def make_answer(self, request: ApiRequest) -> TimelineAnswer:
        if (
            request.parameters.read_choice("sort", TimelineSort, TimelineSort.UPDATED_AT)
            is not TimelineSort.UPDATED_AT
        ):
            raise BadParameterError("sort", _("entities share no numbers; only updatedAt"))
        page = timeline.fetch_page(request.reader, request.make_query())
        return make_timeline(request, page)


@describe.describe_call(
    "applicationAt",
    "The whole application as of a moment.",
    describe.APPLICATION,
    describe.TIME,
    describe.ZONE,
    data=ApplicationAnswer,
)
class ApplicationAtView(ApiView):
    """GET applications/{productInstanceId}/at: the application and its children at a moment."""

    expensive = True

    def make_answer(self, request: ApiRequest) -> ApplicationAnswer:
        output = request.output
        moment = request.parameters.read_required_moment("time", output.zone)
        state = timeline.fetch_application_at(request.reader, request.id, moment)
        root = state.application
        indexes = {entity_ref: VersionIndex(keys) for entity_ref, keys in state.members.items()}
        quarantined = timeline.select_open_at(request.open_messages().messages, moment, indexes)
        return ApplicationAnswer(
            time=output.format_moment(moment),
            application=answers.make_version(root, output) if root else None,
            children={
                entity.name: [
                    answers.make_version(child, output)
                    for child in state.children
                    if child.entity is entity
                ]
                for entity in CHILDREN
            },
            deleted=[answers.make_version(child, output) for child in state.deleted],
            missing=[
                MissingDocument(kind=part.entity.name, id=part.id, reason=part.reason.value)
                for part in state.missing
            ],
            uncertain=answers.list_uncertain(state.following.values(), quarantined, output),
            quarantined=request.quarantined,
            quarantined_count=request.quarantined_count,
            completeness=request.make_completeness(),
            fallback=request.fallback,
        )


@describe.describe_call(
    "search",
    "Entities by id; applications by a business key of theirs or of a child.",
    describe.QUERY,
    *describe.PAGING,
    describe.ZONE,
    data=SearchResultsAnswer,
    may_be_missing=False,
)
class SearchView(ApiView):
    """GET search: the documents with an id or a business key."""

    def make_answer(self, request: ApiRequest) -> SearchResultsAnswer:
        text = request.parameters.read_required("q", SEARCH_VALUE_LENGTH)
        reader = request.reader.omit_snapshots()  # a hit says only which document has the key
        page = timeline.search(reader, text, request.read_page_size(), request.read_page_token())
        messages = timeline.fetch_open_messages(request.reader, page.results)
        return SearchResultsAnswer(
            results=[
                answers.make_search_result(
                    result,
                    request.output,
                    timeline.select_messages_about(result.entity_ref, messages),
                )
                for result in page.results
            ],
            limited=page.limited,
            damaged=answers.list_damaged(request.reader.damaged),
            next_page_token=answers.make_page_token(page.next_token),
            completeness=request.make_completeness(),
        )
