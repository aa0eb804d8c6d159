"""Describes a view in the OpenAPI document: its parameters, answers and errors."""

from collections.abc import Callable
from typing import TypeVar

from drf_spectacular.utils import (
    OpenApiParameter,
    OpenApiResponse,
    extend_schema,
    extend_schema_view,
)

from history.api import errors
from history.api.base_view import ApiView
from history.api.components import COUNT, KIND, NUMBER, OFFSET, TYPE
from history.api.json_schema import JsonSchema, make_enum, make_object, make_ref
from history.api.parameters import TOKEN_LENGTH
from history.documents.record import AUTHOR_LENGTH, CLIENT_ID_LENGTH, ID_LENGTH
from history.kinds.entities import BY_TOPIC, SEARCH_VALUE_LENGTH
from history.timeline import TimelineOrder, TimelineSort
from history.timeline.query import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE, FallbackState

V = TypeVar("V", bound=type[ApiView])

# As long as an address can be.
PATH_TEXT: JsonSchema = {"type": "string", "minLength": 1, "pattern": "^/"}
MOMENT: JsonSchema = {"type": "string", "format": "date-time"}


def _make_text_schema(length: int) -> JsonSchema:
    return {"type": "string", "minLength": 1, "maxLength": length}


def _make_query_parameter(
    name: str, schema: JsonSchema, description: str, *, required: bool = False
) -> OpenApiParameter:
    return OpenApiParameter(name, schema, "query", required, description)


ENTITY = OpenApiParameter("entity", KIND, "path", True, "Kind of entity.")
IDENTIFIER = OpenApiParameter("id", _make_text_schema(ID_LENGTH), "path", True, "The entity's id.")
APPLICATION = OpenApiParameter(
    "productInstanceId", _make_text_schema(ID_LENGTH), "path", True, "The application's id."
)
VERSION = OpenApiParameter("version", NUMBER, "path", True, "Number of the version.")
MADE_AT = _make_query_parameter(
    "updatedAt",
    MOMENT,
    "Which of the versions with this number, where there are several; otherwise the newest.",
)
SIZE = _make_query_parameter(
    "pageSize",
    {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_SIZE, "default": DEFAULT_PAGE_SIZE},
    "How many at most.",
)
TOKEN = _make_query_parameter(
    "pageToken",
    {"type": "string", "pattern": "^v1:", "maxLength": TOKEN_LENGTH},
    "nextPageToken of the page before. All else but pageSize, include and tz must be as it was.",
)
SORT = _make_query_parameter(
    "sort", make_enum(*(word.value for word in TimelineSort)), "Order by time or by version number."
)
BY_TIME = _make_query_parameter(
    "sort", make_enum(TimelineSort.UPDATED_AT.value), "Only by time: entities share no numbers."
)
ORDER = _make_query_parameter(
    "order", make_enum(*(word.value for word in TimelineOrder)), "desc: newest first."
)
FROM = _make_query_parameter(
    "from", MOMENT, "From this moment on. Without an offset it is a time in `tz`."
)
TO = _make_query_parameter("to", MOMENT, "Before this moment.")
AUTHOR = _make_query_parameter("author", _make_text_schema(AUTHOR_LENGTH), "Login of the person.")
CLIENT = _make_query_parameter(
    "clientId", _make_text_schema(CLIENT_ID_LENGTH), "The service that made the change."
)
CHANGE_TYPE = _make_query_parameter("type", TYPE, "What the version did.")
PATH = _make_query_parameter(
    "path",
    PATH_TEXT,
    "Only versions that changed what is there or below: /rate, /documents/[pid=4ad]/status, "
    "/documents/*/status. A page may then be shorter, even empty, and still have a nextPageToken. "
    "The changes that fit come first in a version's changes.",
)
FIELD = _make_query_parameter("path", PATH_TEXT, "The field: /rate", required=True)
INCLUDE = _make_query_parameter(
    "include",
    {"type": "string", "pattern": "^(entity|diff|changes)(,(entity|diff|changes))*$"},
    "Which parts of a version: any of entity, diff, changes. All where not given.",
)
ARCHIVE = _make_query_parameter(
    "archive",
    {"type": "boolean", "default": False},
    "Also the versions that left the store for the archive. Slower; refused where there is none.",
)
ZONE = _make_query_parameter(
    "tz", {"type": "string", "default": "UTC"}, "IANA name of the zone of all times."
)
TIME = _make_query_parameter("time", MOMENT, "As of this moment, included.", required=True)
COMPARE = (
    _make_query_parameter("from", NUMBER, "The one version.", required=True),
    _make_query_parameter("to", NUMBER, "The other version.", required=True),
)
CHANGES_AFTER = _make_query_parameter(
    "changesAfter",
    {**COUNT, "default": 0},
    "Without this many of the first changes: nextChanges of the answer before.",
)
FIRST_PATH = _make_query_parameter(
    "path",
    PATH_TEXT,
    "The changes at this path come first, as in a timeline with this filter.",
)
LEAVES_AFTER = _make_query_parameter(
    "leavesAfter",
    {**COUNT, "default": 0},
    "Without this many of the first leaves: nextLeaves of the answer before.",
)
QUERY = _make_query_parameter(
    "q", _make_text_schema(SEARCH_VALUE_LENGTH), "An id or a business key.", required=True
)

TRACE = (
    _make_query_parameter("entity", KIND, "Of a version: its kind of entity."),
    _make_query_parameter(
        "id", _make_text_schema(ID_LENGTH), "Of a version: the id of its entity."
    ),
    _make_query_parameter("version", NUMBER, "Of a version: its number."),
    _make_query_parameter("topic", make_enum(*BY_TOPIC), "Of a message: its topic."),
    _make_query_parameter("partition", NUMBER, "Of a message: its partition."),
    _make_query_parameter("offset", OFFSET, "Of a message: its offset."),
)

FILTERS = (FROM, TO, AUTHOR, CLIENT, CHANGE_TYPE, PATH)
PAGING = (SIZE, TOKEN)
ANSWER_FORM = (INCLUDE, ZONE)
ENTITY_PATH = (ENTITY, IDENTIFIER)
TIMELINE = (*ENTITY_PATH, *PAGING, SORT, ORDER, *FILTERS, ARCHIVE, *ANSWER_FORM)

IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match", str, "header", description="ETags of answers that the client has."
)
_ETAG = OpenApiParameter(
    "ETag", str, "header", description="Of this answer for this login.", response=[200, 304]
)
_RETRY = OpenApiParameter(
    "Retry-After",
    {"type": "integer"},
    "header",
    description="Seconds. With 200 and 404: until the old service is asked again.",
    response=[200, 404, 503],
)
_REQUEST_ID = OpenApiParameter(
    "X-Request-ID", str, "header", description="The log has it too.", response=True
)
_FALLBACK = OpenApiParameter(
    "X-Annals-Fallback",
    make_enum(*(state.value for state in FallbackState)),
    "header",
    description="Whether the old service answered; absent where it was not asked.",
    response=[200, 404],
)


_CODES: dict[int, list[str]] = {}
for _, _status, _code in errors.ERROR_KINDS:
    # No call answers unknown_address: it is of addresses without one.
    if _code not in ("unknown_address", *_CODES.get(_status, ())):
        _CODES.setdefault(_status, []).append(_code)


def describe_call(
    name: str,
    summary: str,
    *parameters: OpenApiParameter,
    data: str,
    may_be_missing: bool = True,
    has_etag: bool = False,
) -> Callable[[V], V]:
    """Describe a call and its query parameters. data: the component of the envelope's data.
    missing: whether there may be nothing. has_etag: whether it may answer 304."""
    answer_schema = make_object({"status": make_enum("success"), "data": make_ref(data)})
    answers: dict[int, OpenApiResponse] = {200: OpenApiResponse(answer_schema, "Found.")}
    for status, codes in _CODES.items():
        if status != 404 or may_be_missing:
            answers[status] = OpenApiResponse(make_ref("Error"), ", ".join(codes))
    if has_etag:
        parameters = (*parameters, _ETAG)
        answers[304] = OpenApiResponse(None, "The client has this answer.")
    described = extend_schema(
        operation_id=name,
        summary=summary,
        parameters=[*parameters, _REQUEST_ID, _RETRY, _FALLBACK],
        responses=answers,
        tags=["completeness" if data == "Store" else "history"],
    )
    names = frozenset(parameter.name for parameter in parameters if parameter.location == "query")

    def apply(view: V) -> V:
        view.accepts = names
        return extend_schema_view(get=described)(view)

    return apply
