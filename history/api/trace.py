"""GET /api/v1/trace: what became of one version or one message."""

from typing import Any

from django.utils.translation import gettext as _

from history import trace
from history.api import access, describe
from history.api.answers import Answer
from history.api.call import Call, Question
from history.api.parameters import one_of, whole_number
from history.entities import BY_NAME, BY_TOPIC
from history.record import ID_LENGTH, MAX_VERSION
from history.timeline import BadParameterError
from history.trace import MessagePlace

LARGEST_PARTITION = 2**31 - 1
LARGEST_OFFSET = 10**18 - 1
OF_MESSAGE = ("topic", "partition", "offset")
OF_VERSION = ("entity", "id", "version")


@describe.call(
    "trace",
    "What became of a version (entity, id, version) or of a message (topic, partition, offset).",
    *describe.TRACE,
    describe.ZONE,
    data="Fate",
    missing=False,
)
class Trace(Call):
    """GET trace"""

    with_completeness = False

    @property
    def permission(self) -> str:  # type: ignore[override] # two questions, two kinds of reader
        """Messages are for who may see how complete the store is, versions for who reads them."""
        asked: Any = self.request.query_params
        of_version = any(name in asked for name in OF_VERSION)
        of_message = any(name in asked for name in OF_MESSAGE) and not of_version
        return access.READ_COMPLETENESS if of_message else access.READ_HISTORY

    def answer(self, question: Question) -> Answer:
        parameters = question.parameters
        if not any(parameters.text(name, None) for name in OF_MESSAGE):
            kind = parameters.required("entity")
            if kind not in BY_NAME:
                raise BadParameterError("entity", one_of(BY_NAME))
            id = parameters.required("id", ID_LENGTH)
            number = _number(question, "version", MAX_VERSION)
            fate = trace.of_version(question.reader, BY_NAME[kind], id, number)
            return trace.as_object(fate, question.output.moment)
        for name in OF_VERSION:
            if parameters.text(name, None) is not None:
                text = _("cannot be given together with topic, partition or offset")
                raise BadParameterError(name, text)
        topic = parameters.required("topic")
        if topic not in BY_TOPIC:
            raise BadParameterError("topic", one_of(BY_TOPIC))
        place = MessagePlace(
            topic,
            _number(question, "partition", LARGEST_PARTITION),
            _number(question, "offset", LARGEST_OFFSET),
        )
        return trace.as_object(trace.of_message(place), question.output.moment, named=False)


def _number(question: Question, name: str, high: int) -> int:
    return whole_number(name, question.parameters.required(name), 0, high)
