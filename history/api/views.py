"""The calls about one entity."""

from dataclasses import replace
from typing import Any

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework.request import Request

from history import timeline
from history.api import answers, describe
from history.api.answers import Answer
from history.api.call import Call, Question
from history.api.errors import UnknownAddressError
from history.api.parameters import whole_number
from history.record import MAX_VERSION, ChangeType
from history.timeline import Include, Sort

LARGE_PAGE = 100  # a larger one is expensive


@describe.call(
    "timeline",
    "The timeline of one entity, newest first.",
    *describe.TIMELINE,
    data="Timeline",
)
class Timeline(Call):
    """GET history/{entity}/{id}"""

    def is_expensive(self, question: Question) -> bool:
        parameters = question.parameters
        return (
            question.page_size() > LARGE_PAGE
            or parameters.flag("archive")
            or parameters.text("path", length=None) is not None
        )

    def answer(self, question: Question) -> Answer:
        query = question.page(
            entity=question.entity,
            sort=question.parameters.choice("sort", Sort, Sort.UPDATED_AT),
            archive=question.parameters.flag("archive"),
        )
        return answers.page(timeline.page(question.reader, query), question.output)


@describe.call(
    "versions",
    "The same timeline. This address is unambiguous for every id, also for one that ends in /at.",
    *describe.TIMELINE,
    data="Timeline",
)
class Versions(Timeline):
    """GET history/{entity}/{id}/versions"""


@describe.call(
    "version",
    "One version.",
    *describe.ONE,
    describe.VERSION,
    describe.MADE,
    describe.REST,
    describe.FIRST,
    *describe.FORM,
    describe.IF_NONE_MATCH,
    data="Version",
    has_etag=True,
)
class SingleVersion(Call):
    """GET history/{entity}/{id}/versions/{version}"""

    with_completeness = False
    has_etag = True

    def answer(self, question: Question) -> Answer:
        number = whole_number("version", question.address["version"], 0, MAX_VERSION)
        include = question.output.include
        made = question.parameters.moment("updatedAt", question.output.zone)
        first = question.parameters.text("path", length=None)
        found = timeline.version(
            question.reader, question.entity, question.id, number, include, made, first
        )
        return answers.version(found, question.output, question.after("changesAfter"))


@describe.call(
    "compare",
    "The difference of any two versions, in either direction.",
    *describe.ONE,
    *describe.COMPARE,
    describe.REST,
    *describe.FORM,
    data="Comparison",
)
class Compare(Call):
    """GET history/{entity}/{id}/compare"""

    with_completeness = False

    def answer(self, question: Question) -> Answer:
        parameters, output = question.parameters, question.output
        old, new = (
            whole_number(name, parameters.required(name), 0, MAX_VERSION) for name in ("from", "to")
        )
        found = timeline.compare(question.reader, question.entity, question.id, old, new)
        alone = replace(output, include=output.include & {Include.ENTITY})
        data: Answer = {
            "from": answers.version(found.before, alone),
            "to": answers.version(found.after, alone),
        }
        if Include.DIFF in output.include:
            data["diff"] = found.patch
        if Include.CHANGES in output.include:
            after = question.after("changesAfter")
            data |= answers.changes(found.changes, output.language, after)
        return data


@describe.call(
    "at",
    "The snapshot as of a moment.",
    *describe.ONE,
    describe.TIME,
    describe.ZONE,
    data="VersionAt",
)
class At(Call):
    """GET history/{entity}/{id}/at"""

    def answer(self, question: Question) -> Answer:
        moment = question.parameters.required_moment("time", question.output.zone)
        named = (question.entity, question.id)
        found, following, keys = timeline.at(question.reader, *named, moment)
        held = timeline.open_at(question.open_messages().messages, moment, {named: keys})
        return {
            "time": question.output.moment(moment),
            **answers.version(found, question.output),
            "deleted": found.type is ChangeType.DELETE,
            **answers.uncertain([following] if following else (), held, question.output),
        }


@describe.call(
    "field",
    "The history of one field: each value, since when, by whom.",
    *describe.ONE,
    describe.FIELD,
    *describe.PAGES,
    describe.ZONE,
    data="FieldHistory",
)
class Field(Call):
    """GET history/{entity}/{id}/fields"""

    expensive = True

    def answer(self, question: Question) -> Answer:
        path = question.parameters.required("path", length=None)
        size, token = question.page_size(), question.page_token()
        found = timeline.field(question.reader, question.entity, question.id, path, size, token)
        values = [answers.field_value(each, question.output) for each in found.values]
        label = found.label.text(question.output.language) if found.label else None
        return answers.paged({"path": path, "label": label, "values": values}, found.next_token)


@describe.call(
    "blame",
    "The newest snapshot, each leaf with the version, time and author that last changed it.",
    *describe.ONE,
    describe.LEAVES,
    describe.ZONE,
    data="Blame",
)
class Blame(Call):
    """GET history/{entity}/{id}/blame"""

    expensive = True

    def answer(self, question: Question) -> Answer:
        found = timeline.blame(question.reader, question.entity, question.id)
        return {
            **answers.version(found.newest, question.output),
            **answers.leaves(found.leaves, question.output, question.after("leavesAfter")),
        }


@extend_schema_view(get=extend_schema(exclude=True))
class UnknownAddress(Call):
    """Every other address under /api/v1/, whatever its parameters."""

    def get(self, request: Request, **address: str) -> HttpResponse:  # noqa: ARG002
        raise UnknownAddressError

    def options(self, request: Any, *_: Any, **__: Any) -> Any:  # noqa: ARG002
        raise UnknownAddressError
