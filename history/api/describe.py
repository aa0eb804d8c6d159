"""How a call appears in the OpenAPI document: parameters, answers, errors."""

from collections.abc import Callable
from typing import TypeVar

from drf_spectacular.utils import (
    OpenApiParameter,
    OpenApiResponse,
    extend_schema,
    extend_schema_view,
)

from history.api import errors
from history.api.call import Call
from history.api.components import COUNT, KIND, NUMBER, OFFSET, TYPE
from history.api.json_schema import Schema, object_of, one_of, ref
from history.api.parameters import TOKEN_LENGTH
from history.entities import BY_TOPIC, SEARCH_VALUE_LENGTH
from history.record import AUTHOR_LENGTH, CLIENT_ID_LENGTH, ID_LENGTH
from history.timeline import Order, Sort
from history.timeline.query import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE, AskedState

V = TypeVar("V", bound=type[Call])

# As long as an address can be.
PATH_TEXT: Schema = {"type": "string", "minLength": 1, "pattern": "^/"}
MOMENT: Schema = {"type": "string", "format": "date-time"}


def _text(length: int) -> Schema:
    return {"type": "string", "minLength": 1, "maxLength": length}


def _query(
    name: str, schema: Schema, description: str, *, required: bool = False
) -> OpenApiParameter:
    return OpenApiParameter(name, schema, "query", required, description)


ENTITY = OpenApiParameter("entity", KIND, "path", True, "Kind of entity.")
IDENTIFIER = OpenApiParameter("id", _text(ID_LENGTH), "path", True, "The entity's id.")
APPLICATION = OpenApiParameter(
    "productInstanceId", _text(ID_LENGTH), "path", True, "The application's id."
)
VERSION = OpenApiParameter("version", NUMBER, "path", True, "Number of the version.")
MADE = _query(
    "updatedAt",
    MOMENT,
    "Which of the versions with this number, where there are several; otherwise the newest.",
)
SIZE = _query(
    "pageSize",
    {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_SIZE, "default": DEFAULT_PAGE_SIZE},
    "How many at most.",
)
TOKEN = _query(
    "pageToken",
    {"type": "string", "pattern": "^v1:", "maxLength": TOKEN_LENGTH},
    "nextPageToken of the page before. All else but pageSize, include and tz must be as it was.",
)
SORT = _query("sort", one_of(*(word.value for word in Sort)), "Order by time or by version number.")
BY_TIME = _query("sort", one_of(Sort.UPDATED_AT.value), "Only by time: entities share no numbers.")
ORDER = _query("order", one_of(*(word.value for word in Order)), "desc: newest first.")
FROM = _query("from", MOMENT, "From this moment on. Without an offset it is a time in `tz`.")
TO = _query("to", MOMENT, "Before this moment.")
AUTHOR = _query("author", _text(AUTHOR_LENGTH), "Login of the person.")
CLIENT = _query("clientId", _text(CLIENT_ID_LENGTH), "The service that made the change.")
CHANGE_TYPE = _query("type", TYPE, "What the version did.")
PATH = _query(
    "path",
    PATH_TEXT,
    "Only versions that changed what is there or below: /rate, /documents/[pid=4ad]/status, "
    "/documents/*/status. A page may then be shorter, even empty, and still have a nextPageToken. "
    "The changes that fit come first in a version's changes.",
)
FIELD = _query("path", PATH_TEXT, "The field: /rate", required=True)
INCLUDE = _query(
    "include",
    {"type": "string", "pattern": "^(entity|diff|changes)(,(entity|diff|changes))*$"},
    "Which parts of a version: any of entity, diff, changes. All where not given.",
)
ARCHIVE = _query(
    "archive",
    {"type": "boolean", "default": False},
    "Also the versions that left the store for the archive. Slower; refused where there is none.",
)
ZONE = _query("tz", {"type": "string", "default": "UTC"}, "IANA name of the zone of all times.")
TIME = _query("time", MOMENT, "As of this moment, included.", required=True)
COMPARE = (
    _query("from", NUMBER, "The one version.", required=True),
    _query("to", NUMBER, "The other version.", required=True),
)
REST = _query(
    "changesAfter",
    {**COUNT, "default": 0},
    "Without this many of the first changes: nextChanges of the answer before.",
)
FIRST = _query(
    "path",
    PATH_TEXT,
    "The changes at this path come first, as in a timeline with this filter.",
)
LEAVES = _query(
    "leavesAfter",
    {**COUNT, "default": 0},
    "Without this many of the first leaves: nextLeaves of the answer before.",
)
QUERY = _query("q", _text(SEARCH_VALUE_LENGTH), "An id or a business key.", required=True)

TRACE = (
    _query("entity", KIND, "Of a version: its kind of entity."),
    _query("id", _text(ID_LENGTH), "Of a version: the id of its entity."),
    _query("version", NUMBER, "Of a version: its number."),
    _query("topic", one_of(*BY_TOPIC), "Of a message: its topic."),
    _query("partition", NUMBER, "Of a message: its partition."),
    _query("offset", OFFSET, "Of a message: its offset."),
)

FILTERS = (FROM, TO, AUTHOR, CLIENT, CHANGE_TYPE, PATH)
PAGES = (SIZE, TOKEN)
FORM = (INCLUDE, ZONE)
ONE = (ENTITY, IDENTIFIER)
TIMELINE = (*ONE, *PAGES, SORT, ORDER, *FILTERS, ARCHIVE, *FORM)

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
    one_of(*(state.value for state in AskedState)),
    "header",
    description="Whether the old service answered; absent where it was not asked.",
    response=[200, 404],
)


_CODES: dict[int, list[str]] = {}
for _, _status, _code in errors.KINDS:
    # No call answers unknown_address: it is of addresses without one.
    if _code not in ("unknown_address", *_CODES.get(_status, ())):
        _CODES.setdefault(_status, []).append(_code)


def call(
    name: str,
    summary: str,
    *parameters: OpenApiParameter,
    data: str,
    missing: bool = True,
    has_etag: bool = False,
) -> Callable[[V], V]:
    """Describe a call and its query parameters. data: the component of the envelope's data.
    missing: whether there may be nothing. has_etag: whether it may answer 304."""
    found = object_of({"status": one_of("success"), "data": ref(data)})
    answers: dict[int, OpenApiResponse] = {200: OpenApiResponse(found, "Found.")}
    for status, codes in _CODES.items():
        if status != 404 or missing:
            answers[status] = OpenApiResponse(ref("Error"), ", ".join(codes))
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
    names = frozenset(each.name for each in parameters if each.location == "query")

    def apply(view: V) -> V:
        view.accepts = names
        return extend_schema_view(get=described)(view)

    return apply
