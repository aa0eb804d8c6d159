"""The views about one entity."""

from dataclasses import replace
from typing import Any

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework.request import Request

from history import timeline
from history.api import answers, describe
from history.api.answers import AnswerData
from history.api.base_view import ApiRequest, ApiView
from history.api.errors import UnknownAddressError
from history.api.parameters import parse_whole_number
from history.documents.record import MAX_VERSION, ChangeType
from history.timeline import Include, TimelineSort

LARGE_PAGE_SIZE = 100  # a larger one is expensive


@describe.describe_call(
    "timeline",
    "The timeline of one entity, newest first.",
    *describe.TIMELINE,
    data="Timeline",
)
class TimelineView(ApiView):
    """GET history/{entity}/{id}"""

    def is_expensive(self, request: ApiRequest) -> bool:
        parameters = request.parameters
        return (
            request.read_page_size() > LARGE_PAGE_SIZE
            or parameters.read_flag("archive")
            or parameters.read_text("path", length=None) is not None
        )

    def make_answer(self, request: ApiRequest) -> AnswerData:
        query = request.make_query(
            entity=request.entity,
            sort=request.parameters.read_choice("sort", TimelineSort, TimelineSort.UPDATED_AT),
            archive=request.parameters.read_flag("archive"),
        )
        return answers.format_page(timeline.fetch_page(request.reader, query), request.output)


@describe.describe_call(
    "versions",
    "The same timeline. This address is unambiguous for every id, also for one that ends in /at.",
    *describe.TIMELINE,
    data="Timeline",
)
class VersionsView(TimelineView):
    """GET history/{entity}/{id}/versions"""


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
    data="Version",
    has_etag=True,
)
class VersionView(ApiView):
    """GET history/{entity}/{id}/versions/{version}"""

    with_completeness = False
    has_etag = True

    def make_answer(self, request: ApiRequest) -> AnswerData:
        number = parse_whole_number("version", request.address["version"], 0, MAX_VERSION)
        include = request.output.include
        made_at = request.parameters.read_moment("updatedAt", request.output.zone)
        first_path = request.parameters.read_text("path", length=None)
        version = timeline.fetch_version(
            request.reader, request.entity, request.id, number, include, made_at, first_path
        )
        return answers.format_version(version, request.output, request.read_after("changesAfter"))


@describe.describe_call(
    "compare",
    "The difference of any two versions, in either direction.",
    *describe.ENTITY_PATH,
    *describe.COMPARE,
    describe.CHANGES_AFTER,
    *describe.ANSWER_FORM,
    data="Comparison",
)
class CompareView(ApiView):
    """GET history/{entity}/{id}/compare"""

    with_completeness = False

    def make_answer(self, request: ApiRequest) -> AnswerData:
        parameters, output = request.parameters, request.output
        old, new = (
            parse_whole_number(name, parameters.read_required(name), 0, MAX_VERSION)
            for name in ("from", "to")
        )
        comparison = timeline.compare_versions(request.reader, request.entity, request.id, old, new)
        version_format = replace(output, include=output.include & {Include.ENTITY})
        data: AnswerData = {
            "from": answers.format_version(comparison.before, version_format),
            "to": answers.format_version(comparison.after, version_format),
        }
        if Include.DIFF in output.include:
            data["diff"] = comparison.patch
        if Include.CHANGES in output.include:
            after = request.read_after("changesAfter")
            data |= answers.format_changes(comparison.changes, output.language, after)
        return data


@describe.describe_call(
    "at",
    "The snapshot as of a moment.",
    *describe.ENTITY_PATH,
    describe.TIME,
    describe.ZONE,
    data="VersionAt",
)
class VersionAtView(ApiView):
    """GET history/{entity}/{id}/at"""

    def make_answer(self, request: ApiRequest) -> AnswerData:
        moment = request.parameters.read_required_moment("time", request.output.zone)
        named = (request.entity, request.id)
        version, next_version, keys = timeline.fetch_version_at(request.reader, *named, moment)
        held = timeline.select_open_at(request.open_messages().messages, moment, {named: keys})
        return {
            "time": request.output.format_moment(moment),
            **answers.format_version(version, request.output),
            "deleted": version.type is ChangeType.DELETE,
            **answers.format_uncertain(
                [next_version] if next_version else (), held, request.output
            ),
        }


@describe.describe_call(
    "field",
    "The history of one field: each value, since when, by whom.",
    *describe.ENTITY_PATH,
    describe.FIELD,
    *describe.PAGING,
    describe.ZONE,
    data="FieldHistory",
)
class FieldHistoryView(ApiView):
    """GET history/{entity}/{id}/fields"""

    expensive = True

    def make_answer(self, request: ApiRequest) -> AnswerData:
        path = request.parameters.read_required("path", length=None)
        size, token = request.read_page_size(), request.read_page_token()
        history = timeline.fetch_field_history(
            request.reader, request.entity, request.id, path, size, token
        )
        values = [
            answers.format_field_value(field_value, request.output)
            for field_value in history.values
        ]
        label = history.label.get_text(request.output.language) if history.label else None
        return answers.add_next_token(
            {"path": path, "label": label, "values": values}, history.next_token
        )


@describe.describe_call(
    "blame",
    "The newest snapshot, each leaf with the version, time and author that last changed it.",
    *describe.ENTITY_PATH,
    describe.LEAVES_AFTER,
    describe.ZONE,
    data="Blame",
)
class BlameView(ApiView):
    """GET history/{entity}/{id}/blame"""

    expensive = True

    def make_answer(self, request: ApiRequest) -> AnswerData:
        result = timeline.blame_leaves(request.reader, request.entity, request.id)
        return {
            **answers.format_version(result.newest, request.output),
            **answers.format_leaves(
                result.leaves, request.output, request.read_after("leavesAfter")
            ),
        }


@extend_schema_view(get=extend_schema(exclude=True))
class UnknownAddressView(ApiView):
    """Every other address under /api/v1/, whatever its parameters."""

    def get(self, request: Request, **address: str) -> HttpResponse:  # noqa: ARG002
        raise UnknownAddressError

    def options(self, request: Any, *_: Any, **__: Any) -> Any:  # noqa: ARG002
        raise UnknownAddressError
