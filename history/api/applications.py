"""The calls about a whole application, and the search."""

from __future__ import annotations

from history import complete_to, timeline
from history.api import answers, describe, examples
from history.api.answers import Answer
from history.api.parameters import TOKEN_LENGTH, Parameters
from history.api.views import Call, filters, page_size, plain, shape
from history.entities import CHILDREN, ENTITIES
from history.search_keys import SEARCH_VALUE_LENGTH
from history.timeline import ApplicationQuery, Order, Sort


@describe.call(
    "applicationHistory",
    "One merged timeline of an application and its children.",
    describe.APPLICATION,
    *describe.PAGES,
    describe.BY_TIME,
    describe.ORDER,
    *describe.FILTERS,
    *describe.FORM,
    data="Timeline",
    example=examples.TIMELINE,
)
class ApplicationTimeline(Call):
    """GET applications/{productInstanceId}/history"""

    def answer(self, parameters: Parameters, **place: str) -> Answer:
        form = shape(parameters)
        if parameters.choice("sort", Sort, Sort.UPDATED_AT) is not Sort.UPDATED_AT:
            raise timeline.BadParameterError("sort", "entities share no numbers; only updatedAt")
        query = ApplicationQuery(
            id=place["productInstanceId"],
            filters=filters(parameters, form),
            order=parameters.choice("order", Order, Order.DESC),
            page_size=page_size(parameters),
            page_token=parameters.text("pageToken", TOKEN_LENGTH),
            include=form.include,
        )
        parameters.finish()
        found = timeline.application(query)
        return answers.page(found, complete_to.read(ENTITIES), form)


@describe.call(
    "applicationAt",
    "The whole application as of a moment.",
    describe.APPLICATION,
    describe.TIME,
    describe.ZONE,
    data="Application",
    example=examples.APPLICATION,
)
class ApplicationAt(Call):
    """GET applications/{productInstanceId}/at"""

    def answer(self, parameters: Parameters, **place: str) -> Answer:
        form = plain(parameters)
        moment = parameters.required_moment("time", form.zone)
        parameters.finish()
        found = timeline.application_at(place["productInstanceId"], moment)
        root = found.application
        return {
            "time": form.moment(moment),
            "application": answers.version(root, form) if root else None,
            "children": {
                entity.name: [
                    answers.version(child, form)
                    for child in found.children
                    if child.entity is entity
                ]
                for entity in CHILDREN
            },
            "deleted": [answers.version(child, form) for child in found.deleted],
            "completeness": answers.completeness(complete_to.read(ENTITIES), form),
        }


@describe.call(
    "search",
    "Entities by id, or by a business key that any of their versions had.",
    describe.WORDS,
    *describe.PAGES,
    describe.ZONE,
    data="SearchResults",
    example=examples.SEARCH,
    missing=False,
)
class Search(Call):
    """GET search"""

    def answer(self, parameters: Parameters, **place: str) -> Answer:  # noqa: ARG002
        form = plain(parameters)
        text = parameters.required("q", SEARCH_VALUE_LENGTH)
        size, token = page_size(parameters), parameters.text("pageToken", TOKEN_LENGTH)
        parameters.finish()
        results = timeline.search(text, size, token)
        data: Answer = {"results": [answers.found(each, form) for each in results.found]}
        if results.next_token is not None:
            data["nextPageToken"] = results.next_token
        data["completeness"] = answers.completeness(complete_to.read(ENTITIES), form)
        return data
