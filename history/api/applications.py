"""The calls about a whole application, and the search."""

from django.utils.translation import gettext as _

from history import timeline
from history.api import answers, describe
from history.api.answers import Answer
from history.api.call import Call, Question
from history.entities import CHILDREN, SEARCH_VALUE_LENGTH
from history.timeline import BadParameterError, Sort
from history.timeline.keys import Keys


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
)
class ApplicationTimeline(Call):
    """GET applications/{productInstanceId}/history"""

    expensive = True

    def answer(self, question: Question) -> Answer:
        if question.parameters.choice("sort", Sort, Sort.UPDATED_AT) is not Sort.UPDATED_AT:
            raise BadParameterError("sort", _("entities share no numbers; only updatedAt"))
        found = timeline.page(question.reader, question.page())
        return answers.page(found, question.output)


@describe.call(
    "applicationAt",
    "The whole application as of a moment.",
    describe.APPLICATION,
    describe.TIME,
    describe.ZONE,
    data="Application",
)
class ApplicationAt(Call):
    """GET applications/{productInstanceId}/at"""

    expensive = True

    def answer(self, question: Question) -> Answer:
        output = question.output
        moment = question.parameters.required_moment("time", output.zone)
        found = timeline.application_at(question.reader, question.id, moment)
        root = found.application
        keys = {named: Keys(its) for named, its in found.members.items()}
        held = timeline.open_at(question.open_messages().messages, moment, keys)
        return {
            "time": output.moment(moment),
            "application": answers.version(root, output) if root else None,
            "children": {
                entity.name: [
                    answers.version(child, output)
                    for child in found.children
                    if child.entity is entity
                ]
                for entity in CHILDREN
            },
            "deleted": [answers.version(child, output) for child in found.deleted],
            "missing": [
                {"kind": part.entity.name, "id": part.id, "reason": part.why.value}
                for part in found.missing
            ],
            **answers.uncertain(found.following.values(), held, output),
        }


@describe.call(
    "search",
    "Entities by id; applications by a business key of theirs or of a child.",
    describe.QUERY,
    *describe.PAGES,
    describe.ZONE,
    data="SearchResults",
    missing=False,
)
class Search(Call):
    """GET search"""

    def answer(self, question: Question) -> Answer:
        text = question.parameters.required("q", SEARCH_VALUE_LENGTH)
        reader = question.reader.without_documents()  # a hit says no more than who has the key
        results = timeline.search(reader, text, question.page_size(), question.page_token())
        messages = timeline.open_messages(question.reader, results.found)
        found = [
            answers.found(each, question.output, timeline.held_of(each.named, messages))
            for each in results.found
        ]
        data = {"results": found, "limited": results.limited}
        lacking = answers.damaged(question.reader.damaged)
        return answers.paged(data | lacking, results.next_token)
