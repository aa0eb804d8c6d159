"""GET /api/v1/trace: the fate of one version or one message."""

from typing import Any

import msgspec
from django.utils.translation import gettext as _
from msgspec import UNSET, UnsetType

from history.api import access, describe
from history.api.answer_types import Fallback
from history.api.base_view import ApiRequest, ApiView, find_kind
from history.api.parameters import explain_choices, parse_whole_number
from history.completeness import trace
from history.completeness.trace import Fate, FateDescription, MessagePosition
from history.documents.record import ID_LENGTH, MAX_VERSION
from history.kinds.entities import BY_TOPIC
from history.timeline import BadParameterError

LARGEST_PARTITION = 2**31 - 1
LARGEST_OFFSET = 10**18 - 1
MESSAGE_PARAMETERS = ("topic", "partition", "offset")
VERSION_PARAMETERS = ("entity", "id", "version")


class FateAnswer(FateDescription, kw_only=True):
    """The fate of one version or message."""

    fallback: Fallback | UnsetType = UNSET


@describe.describe_call(
    "trace",
    "What became of a version (entity, id, version) or of a message (topic, partition, offset).",
    *describe.TRACE,
    describe.ZONE,
    data=FateAnswer,
    may_be_missing=False,
)
class TraceView(ApiView):
    """GET trace: the fate of one version or one message."""

    with_completeness = False

    @property
    def permission(self) -> str:  # type: ignore[override]
        """READ_COMPLETENESS if the call asks about a message, READ_HISTORY if about a version."""
        query: Any = self.request.query_params
        of_version = any(name in query for name in VERSION_PARAMETERS)
        of_message = any(name in query for name in MESSAGE_PARAMETERS) and not of_version
        return access.READ_COMPLETENESS if of_message else access.READ_HISTORY

    def make_answer(self, request: ApiRequest) -> FateAnswer:
        parameters = request.parameters
        if not any(parameters.read_text(name, None) for name in MESSAGE_PARAMETERS):
            kind = find_kind(parameters.read_required("entity"))
            id = parameters.read_required("id", ID_LENGTH)
            number = _read_number(request, "version", MAX_VERSION)
            fate = trace.trace_version(request.reader, kind, id, number)
            return _make_fate(request, fate)
        for name in VERSION_PARAMETERS:
            if parameters.read_text(name, None) is not None:
                text = _("cannot be given together with topic, partition or offset")
                raise BadParameterError(name, text)
        topic = parameters.read_required("topic")
        if topic not in BY_TOPIC:
            raise BadParameterError("topic", explain_choices(BY_TOPIC))
        position = MessagePosition(
            topic,
            _read_number(request, "partition", LARGEST_PARTITION),
            _read_number(request, "offset", LARGEST_OFFSET),
        )
        return _make_fate(request, trace.trace_message(position), with_name=False)


def _make_fate(request: ApiRequest, fate: Fate, *, with_name: bool = True) -> FateAnswer:
    description = trace.make_description(fate, request.output.format_moment, with_name=with_name)
    return FateAnswer(**msgspec.structs.asdict(description), fallback=request.fallback)


def _read_number(request: ApiRequest, name: str, high: int) -> int:
    return parse_whole_number(name, request.parameters.read_required(name), 0, high)
