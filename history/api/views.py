"""The views about one document."""

from dataclasses import replace
from typing import Any

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework.request import Request

from history import timeline
from history.api import answers, describe
from history.api.answer_types import (
    BlameAnswer,
    ComparisonAnswer,
    FieldHistoryAnswer,
    TimelineAnswer,
    VersionAnswer,
    VersionAtAnswer,
)
from history.api.base_view import ApiRequest, ApiView
from history.api.errors import UnknownAddressError
from history.api.parameters import parse_whole_number
from history.documents.record import MAX_VERSION, ChangeType
from history.store.versions import EntityRef
from history.timeline import Include, TimelinePage, TimelineSort

LARGE_PAGE_SIZE = 100  # a request for a larger page counts as expensive


@describe.describe_call(
    "timeline",
    "The timeline of one entity, newest first.",
    *describe.TIMELINE,
    data=TimelineAnswer,
)
class TimelineView(ApiView):
    """GET history/{entity}/{id}: the timeline of a document."""

    def is_expensive(self, request: ApiRequest) -> bool:
        parameters = request.parameters
        return (
            request.read_page_size() > LARGE_PAGE_SIZE
            or parameters.read_flag("archive")
            or parameters.read_text("path", length=None) is not None
        )

    def make_answer(self, request: ApiRequest) -> TimelineAnswer:
        query = request.make_query(
            entity=request.entity,
            sort=request.parameters.read_choice("sort", TimelineSort, TimelineSort.UPDATED_AT),
            archive=request.parameters.read_flag("archive"),
        )
        return make_timeline(request, timeline.fetch_page(request.reader, query))


def make_timeline(request: ApiRequest, page: TimelinePage) -> TimelineAnswer:
    """Make the answer for one page of a timeline."""
    versions = [answers.make_version(version, request.output) for version in page.versions]
    return TimelineAnswer(
        history=versions,
        damaged=answers.list_damaged(page.damaged),
        next_page_token=answers.make_page_token(page.next_token),
        quarantined=request.quarantined,
        quarantined_count=request.quarantined_count,
        completeness=request.make_completeness(versions),
        fallback=request.fallback,
    )


@describe.describe_call(
    "versions",
    "The same timeline. This address is unambiguous for every id, also for one that ends in /at.",
    *describe.TIMELINE,
    data=TimelineAnswer,
)
class VersionsView(TimelineView):
    """GET history/{entity}/{id}/versions: the timeline of a document."""


@describe.describe_call(
    "version",
    "One version.",
    *describe.ENTITY_PATH,
    describe.VERSION,
    describe.MADE_AT,
    describe.CHANGES_AFTER,
    describe.FIRST_PATH,
    *describe.ANSWER_FORM,
    describe.IF_NONE_MATCH,
    data=VersionAnswer,
    has_etag=True,
)
class VersionView(ApiView):
    """GET history/{entity}/{id}/versions/{version}: one version of a document."""

    with_completeness = False
    has_etag = True

    def make_answer(self, request: ApiRequest) -> VersionAnswer:
        number = parse_whole_number("version", request.address["version"], 0, MAX_VERSION)
        include = request.output.include
        made_at = request.parameters.read_moment("updatedAt", request.output.zone)
        first_path = request.parameters.read_text("path", length=None)
        version = timeline.fetch_version(
            request.reader, request.entity, request.id, number, include, made_at, first_path
        )
        answer = answers.make_version(version, request.output, request.read_after("changesAfter"))
        answer.quarantined = request.quarantined
        answer.quarantined_count = request.quarantined_count
        answer.fallback = request.fallback
        return answer


@describe.describe_call(
    "compare",
    "The difference of any two versions, in either direction.",
    *describe.ENTITY_PATH,
    *describe.COMPARE,
    describe.CHANGES_AFTER,
    *describe.ANSWER_FORM,
    data=ComparisonAnswer,
)
class CompareView(ApiView):
    """GET history/{entity}/{id}/compare: the changes between two versions of a document."""

    with_completeness = False

    def make_answer(self, request: ApiRequest) -> ComparisonAnswer:
        parameters, output = request.parameters, request.output
        old, new = (
            parse_whole_number(name, parameters.read_required(name), 0, MAX_VERSION)
            for name in ("from", "to")
        )
        comparison = timeline.compare_versions(request.reader, request.entity, request.id, old, new)
        version_format = replace(output, include=output.include & {Include.ENTITY})
        answer = ComparisonAnswer(
            from_=answers.make_version(comparison.before, version_format),
            to=answers.make_version(comparison.after, version_format),
            quarantined=request.quarantined,
            quarantined_count=request.quarantined_count,
            fallback=request.fallback,
        )
        if Include.DIFF in output.include:
            answer.diff = answers.make_operations(comparison.patch)
        if Include.CHANGES in output.include:
            after = request.read_after("changesAfter")
            answer.changes, answer.change_count, answer.next_changes = answers.list_changes(
                comparison.changes, output.language, after
            )
        return answer


@describe.describe_call(
    "at",
    "The snapshot as of a moment.",
    *describe.ENTITY_PATH,
    describe.TIME,
    describe.ZONE,
    data=VersionAtAnswer,
)
class VersionAtView(ApiView):
    """GET history/{entity}/{id}/at: the version of a document that was current at a moment."""

    def make_answer(self, request: ApiRequest) -> VersionAtAnswer:
        moment = request.parameters.read_required_moment("time", request.output.zone)
        entity_ref = EntityRef(request.entity, request.id)
        version, next_version, keys = timeline.fetch_version_at(request.reader, *entity_ref, moment)
        quarantined = timeline.select_open_at(
            request.open_messages().messages, moment, {entity_ref: keys}
        )
        return VersionAtAnswer(
            time=request.output.format_moment(moment),
            **answers.copy_members(answers.make_version(version, request.output)),
            deleted=version.type is ChangeType.DELETE,
            uncertain=answers.list_uncertain(
                [next_version] if next_version else (), quarantined, request.output
            ),
            quarantined=request.quarantined,
            quarantined_count=request.quarantined_count,
            completeness=request.make_completeness(),
            fallback=request.fallback,
        )


@describe.describe_call(
    "field",
    "The history of one field: each value, since when, by whom.",
    *describe.ENTITY_PATH,
    describe.FIELD,
    *describe.PAGING,
    describe.ZONE,
    data=FieldHistoryAnswer,
)
class FieldHistoryView(ApiView):
    """GET history/{entity}/{id}/fields: all values that one field of a document has had."""

    expensive = True

    def make_answer(self, request: ApiRequest) -> FieldHistoryAnswer:
        path = request.parameters.read_required("path", length=None)
        size, token = request.read_page_size(), request.read_page_token()
        history = timeline.fetch_field_history(
            request.reader, request.entity, request.id, path, size, token
        )
        return FieldHistoryAnswer(
            path=path,
            label=history.label.get_text(request.output.language) if history.label else None,
            values=[
                answers.make_field_value(field_value, request.output)
                for field_value in history.values
            ],
            next_page_token=answers.make_page_token(history.next_token),
            quarantined=request.quarantined,
            quarantined_count=request.quarantined_count,
            completeness=request.make_completeness(),
            fallback=request.fallback,
        )


@describe.describe_call(
    "blame",
    "The newest snapshot, each leaf with the version, time and author that last changed it.",
    *describe.ENTITY_PATH,
    describe.LEAVES_AFTER,
    describe.ZONE,
    data=BlameAnswer,
)
class BlameView(ApiView):
    """GET history/{entity}/{id}/blame: which version last changed each value.

    The answer has the values of the newest snapshot.
    """

    expensive = True

    def make_answer(self, request: ApiRequest) -> BlameAnswer:
        result = timeline.blame_leaves(request.reader, request.entity, request.id)
        listed = answers.list_leaves(
            result.leaves, request.output, request.read_after("leavesAfter")
        )
        return BlameAnswer(
            **answers.copy_members(answers.make_version(result.newest, request.output)),
            blame=listed.leaves,
            leaf_count=listed.leaf_count,
            next_leaves=listed.next_leaves,
            quarantined=request.quarantined,
            quarantined_count=request.quarantined_count,
            completeness=request.make_completeness(),
            fallback=request.fallback,
        )


@extend_schema_view(get=extend_schema(exclude=True))
class UnknownAddressView(ApiView):
    """All other addresses under /api/v1/: the answer is 404 unknown_address."""

    def get(self, request: Request, **address: str) -> HttpResponse:  # noqa: ARG002
        raise UnknownAddressError

    def options(self, request: Any, *_: Any, **__: Any) -> Any:  # noqa: ARG002
        raise UnknownAddressError
