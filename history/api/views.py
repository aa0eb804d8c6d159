"""The calls about one entity."""

from __future__ import annotations

from typing import Any, ClassVar

from django.utils.cache import patch_vary_headers
from django.utils.translation import get_language_from_request
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from history import complete_to, timeline
from history.api import access, answers, describe, examples
from history.api.answers import Answer, Shape
from history.api.errors import UnknownAddressError, UnknownEntityError
from history.api.parameters import TOKEN_LENGTH, Parameters, whole
from history.entities import BY_NAME, Entity
from history.record import AUTHOR_LENGTH, CLIENT_ID_LENGTH, MAX_VERSION, ChangeType
from history.timeline import Filters, Include, Order, Query, Sort
from history.timeline.query import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE


class Call(APIView):
    """A call of the API: reads its parameters, answers in the envelope."""

    permission: ClassVar[str] = access.READ_HISTORY

    def get(self, request: Request, **place: str) -> Response:
        language = get_language_from_request(request)
        data = self.answer(Parameters(request.query_params, language), **place)
        response = Response({"status": "success", "data": data})
        patch_vary_headers(response, ["Accept-Language", "Authorization", "Cookie"])
        response.headers["Cache-Control"] = "private, no-cache"  # people's data; ask each time
        return response

    def answer(self, parameters: Parameters, **place: str) -> Any:
        """The `data` of the envelope. Must end the reading of parameters with finish()."""
        raise NotImplementedError


def kind(entity: str) -> Entity:
    """The kind of entity with this name; UnknownEntityError."""
    try:
        return BY_NAME[entity]
    except KeyError:
        raise UnknownEntityError(
            f"there is no kind of entity of this name; there are {', '.join(BY_NAME)}"
        ) from None


def shape(parameters: Parameters) -> Shape:
    """`include`, `tz` and the language that the request asks for."""
    return Shape(
        include=parameters.some("include", Include),
        zone=parameters.zone(),
        language=parameters.language,
    )


def plain(parameters: Parameters) -> Shape:
    """`tz` and the language, for calls that always give the snapshot and never a diff."""
    return Shape(frozenset({Include.ENTITY}), parameters.zone(), parameters.language)


def filters(parameters: Parameters, form: Shape) -> Filters:
    """`from`, `to`, `author`, `clientId`, `type`, `path`."""
    given = parameters.text("type")
    if given is not None and given not in ChangeType.__members__:
        raise timeline.BadParameterError(
            "type", f"must be one of {', '.join(ChangeType.__members__)}"
        )
    return Filters(
        since=parameters.moment("from", form.zone),
        until=parameters.moment("to", form.zone),
        author=parameters.text("author", AUTHOR_LENGTH),
        client_id=parameters.text("clientId", CLIENT_ID_LENGTH),
        type=ChangeType[given] if given else None,
        path=parameters.text("path"),
    )


def page_size(parameters: Parameters) -> int:
    return parameters.number("pageSize", 1, MAX_PAGE_SIZE) or DEFAULT_PAGE_SIZE


@describe.call(
    "timeline",
    "The timeline of one entity, newest first.",
    *describe.ONE,
    *describe.PAGES,
    describe.SORT,
    describe.ORDER,
    *describe.FILTERS,
    describe.ARCHIVE,
    *describe.FORM,
    data="Timeline",
    example=examples.TIMELINE,
)
class Timeline(Call):
    """GET history/{entity}/{id}"""

    def answer(self, parameters: Parameters, **place: str) -> Answer:
        entity = kind(place["entity"])
        form = shape(parameters)
        query = Query(
            entity=entity,
            id=place["id"],
            filters=filters(parameters, form),
            sort=parameters.choice("sort", Sort, Sort.UPDATED_AT),
            order=parameters.choice("order", Order, Order.DESC),
            page_size=page_size(parameters),
            page_token=parameters.text("pageToken", TOKEN_LENGTH),
            include=form.include,
            archive=parameters.flag("archive"),
        )
        parameters.finish()
        found = timeline.page(query)
        return answers.page(found, complete_to.read([entity]), form)


@describe.call(
    "version",
    "One version.",
    *describe.ONE,
    describe.VERSION,
    *describe.FORM,
    data="Version",
    example=examples.VERSION,
    tagged=True,
)
class SingleVersion(Call):
    """GET history/{entity}/{id}/versions/{version}"""

    def answer(self, parameters: Parameters, **place: str) -> Answer:
        entity = kind(place["entity"])
        form = shape(parameters)
        number = whole("version", place["version"], 0, MAX_VERSION)
        parameters.finish()
        return answers.version(timeline.version(entity, place["id"], number, form.include), form)


@describe.call(
    "compare",
    "The difference of any two versions, in either direction.",
    *describe.ONE,
    *describe.COMPARE,
    *describe.FORM,
    data="Comparison",
    example=examples.COMPARISON,
)
class Compare(Call):
    """GET history/{entity}/{id}/compare"""

    def answer(self, parameters: Parameters, **place: str) -> Answer:
        entity = kind(place["entity"])
        form = shape(parameters)
        old, new = (
            whole(name, parameters.required(name), 0, MAX_VERSION) for name in ("from", "to")
        )
        parameters.finish()
        found = timeline.compare(entity, place["id"], old, new)
        sides = Shape(form.include & {Include.ENTITY}, form.zone, form.language)
        data: Answer = {
            "from": answers.version(found.before, sides),
            "to": answers.version(found.after, sides),
        }
        if Include.DIFF in form.include:
            data["diff"] = found.patch
        if Include.CHANGES in form.include:
            data["changes"] = [answers.change(each, form.language) for each in found.changes]
        return data


@describe.call(
    "at",
    "The snapshot as of a moment.",
    *describe.ONE,
    describe.TIME,
    describe.ZONE,
    data="VersionAt",
    example=examples.VERSION_AT,
)
class At(Call):
    """GET history/{entity}/{id}/at"""

    def answer(self, parameters: Parameters, **place: str) -> Answer:
        entity = kind(place["entity"])
        form = plain(parameters)
        moment = parameters.required_moment("time", form.zone)
        parameters.finish()
        found = timeline.at(entity, place["id"], moment)
        return {
            "time": form.moment(moment),
            **answers.version(found, form),
            "deleted": found.type is ChangeType.DELETE,
            "completeness": answers.completeness(complete_to.read([entity]), form),
        }


@describe.call(
    "field",
    "The history of one field: each value, since when, by whom.",
    *describe.ONE,
    describe.FIELD,
    *describe.PAGES,
    describe.ZONE,
    data="FieldHistory",
    example=examples.FIELD,
)
class Field(Call):
    """GET history/{entity}/{id}/fields"""

    def answer(self, parameters: Parameters, **place: str) -> Answer:
        entity = kind(place["entity"])
        form = plain(parameters)
        path = parameters.required("path")
        size, token = page_size(parameters), parameters.text("pageToken", TOKEN_LENGTH)
        parameters.finish()
        found = timeline.field(entity, place["id"], path, size, token)
        data: Answer = {
            "path": path,
            "label": found.label.text(form.language) if found.label else None,
            "values": [answers.field_value(each, form) for each in found.values],
        }
        if found.next_token is not None:
            data["nextPageToken"] = found.next_token
        data["completeness"] = answers.completeness(complete_to.read([entity]), form)
        return data


@describe.call(
    "blame",
    "The newest snapshot, each leaf with the version, time and author that last changed it.",
    *describe.ONE,
    describe.ZONE,
    data="Blame",
    example=examples.BLAME,
)
class Blame(Call):
    """GET history/{entity}/{id}/blame"""

    def answer(self, parameters: Parameters, **place: str) -> Answer:
        entity = kind(place["entity"])
        form = plain(parameters)
        parameters.finish()
        found = timeline.blame(entity, place["id"])
        return {
            **answers.version(found.newest, form),
            "blame": [answers.leaf(each, form) for each in found.leaves],
            "completeness": answers.completeness(complete_to.read([entity]), form),
        }


@extend_schema_view(get=extend_schema(exclude=True))
class Nowhere(Call):
    """Every other address under /api/v1/."""

    def answer(self, parameters: Parameters, **place: str) -> Answer:  # noqa: ARG002
        raise UnknownAddressError
