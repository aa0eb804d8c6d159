"""Describes a view in the OpenAPI document: its parameters, answers and errors."""

from collections.abc import Callable
from typing import Annotated, Any, Final, TypeAlias, TypeVar

from drf_spectacular.utils import (
    OpenApiParameter,
    OpenApiResponse,
    extend_schema,
    extend_schema_view,
)
from msgspec import Meta

from history.api import errors
from history.api.answer_schema import make_schema
from history.api.answer_types import SuccessEnvelope
from history.api.base_view import ApiView
from history.api.parameters import TOKEN_LENGTH
from history.common.answer_types import (
    Answer,
    ChangeTypeName,
    Count,
    KindName,
    Moment,
    Offset,
    VersionNumber,
    choose_from,
)
from history.common.error_answers import ErrorAnswer
from history.documents.record import AUTHOR_LENGTH, CLIENT_ID_LENGTH, ID_LENGTH
from history.kinds.entities import BY_TOPIC, SEARCH_VALUE_LENGTH
from history.timeline import TimelineOrder, TimelineSort
from history.timeline.query import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE, FallbackState

V = TypeVar("V", bound=type[ApiView])

# A path may be as long as an address can be, so there is no maximum length.
PathText: TypeAlias = Annotated[str, Meta(min_length=1, pattern="^/")]
Identifier: TypeAlias = Annotated[str, Meta(min_length=1, max_length=ID_LENGTH)]
SearchText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=SEARCH_VALUE_LENGTH)]
AuthorLogin: TypeAlias = Annotated[str, Meta(min_length=1, max_length=AUTHOR_LENGTH)]
ClientId: TypeAlias = Annotated[str, Meta(min_length=1, max_length=CLIENT_ID_LENGTH)]
TopicName: TypeAlias = Annotated[str, choose_from(BY_TOPIC)]
ListOffset: TypeAlias = Annotated[Count, Meta(extra_json_schema={"default": 0})]


def _make_path_parameter(name: str, type_: Any, description: str) -> OpenApiParameter:
    return OpenApiParameter(name, make_schema(type_), "path", True, description)


def _make_query_parameter(
    name: str, type_: Any, description: str, *, required: bool = False
) -> OpenApiParameter:
    return OpenApiParameter(name, make_schema(type_), "query", required, description)


ENTITY = _make_path_parameter("entity", KindName, "Kind of entity.")
IDENTIFIER = _make_path_parameter("id", Identifier, "The entity's id.")
APPLICATION = _make_path_parameter("productInstanceId", Identifier, "The application's id.")
VERSION = _make_path_parameter("version", VersionNumber, "Number of the version.")
MADE_AT = _make_query_parameter(
    "updatedAt",
    Moment,
    "Which of the versions with this number, where there are several; otherwise the newest.",
)
SIZE = _make_query_parameter(
    "pageSize",
    Annotated[int, Meta(ge=1, le=MAX_PAGE_SIZE, extra_json_schema={"default": DEFAULT_PAGE_SIZE})],
    "How many at most.",
)
TOKEN = _make_query_parameter(
    "pageToken",
    Annotated[str, Meta(pattern="^v1:", max_length=TOKEN_LENGTH)],
    "nextPageToken of the page before. All else but pageSize, include and tz must be as it was.",
)
SORT = _make_query_parameter(
    "sort",
    Annotated[str, choose_from(word.value for word in TimelineSort)],
    "Order by time or by version number.",
)
BY_TIME = _make_query_parameter(
    "sort",
    Annotated[str, choose_from([TimelineSort.UPDATED_AT.value])],
    "Only by time: entities share no numbers.",
)
ORDER = _make_query_parameter(
    "order",
    Annotated[str, choose_from(word.value for word in TimelineOrder)],
    "desc: newest first.",
)
FROM = _make_query_parameter(
    "from", Moment, "From this moment on. Without an offset it is a time in `tz`."
)
TO = _make_query_parameter("to", Moment, "Before this moment.")
AUTHOR = _make_query_parameter("author", AuthorLogin, "Login of the person.")
CLIENT = _make_query_parameter("clientId", ClientId, "The service that made the change.")
CHANGE_TYPE = _make_query_parameter("type", ChangeTypeName, "What the version did.")
PATH = _make_query_parameter(
    "path",
    PathText,
    "Only versions that changed what is there or below: /rate, /documents/[pid=4ad]/status, "
    "/documents/*/status. A page may then be shorter, even empty, and still have a nextPageToken. "
    "The changes that fit come first in a version's changes.",
)
FIELD = _make_query_parameter("path", PathText, "The field: /rate", required=True)
INCLUDE = _make_query_parameter(
    "include",
    Annotated[str, Meta(pattern="^(entity|diff|changes)(,(entity|diff|changes))*$")],
    "Which parts of a version: any of entity, diff, changes. All where not given.",
)
ARCHIVE = _make_query_parameter(
    "archive",
    Annotated[bool, Meta(extra_json_schema={"default": False})],
    "Also the versions that left the store for the archive. Slower; refused where there is none.",
)
ZONE = _make_query_parameter(
    "tz",
    Annotated[str, Meta(extra_json_schema={"default": "UTC"})],
    "IANA name of the zone of all times.",
)
TIME = _make_query_parameter("time", Moment, "As of this moment, included.", required=True)
COMPARE = (
    _make_query_parameter("from", VersionNumber, "The one version.", required=True),
    _make_query_parameter("to", VersionNumber, "The other version.", required=True),
)
CHANGES_AFTER = _make_query_parameter(
    "changesAfter",
    ListOffset,
    "Without this many of the first changes: nextChanges of the answer before.",
)
FIRST_PATH = _make_query_parameter(
    "path",
    PathText,
    "The changes at this path come first, as in a timeline with this filter.",
)
LEAVES_AFTER = _make_query_parameter(
    "leavesAfter",
    ListOffset,
    "Without this many of the first leaves: nextLeaves of the answer before.",
)
QUERY = _make_query_parameter(
    "q",
    SearchText,
    "An id or a business key.",
    required=True,
)

TRACE = (
    _make_query_parameter("entity", KindName, "Of a version: its kind of entity."),
    _make_query_parameter("id", Identifier, "Of a version: the id of its entity."),
    _make_query_parameter("version", VersionNumber, "Of a version: its number."),
    _make_query_parameter("topic", TopicName, "Of a message: its topic."),
    _make_query_parameter("partition", VersionNumber, "Of a message: its partition."),
    _make_query_parameter("offset", Offset, "Of a message: its offset."),
)

FILTERS = (FROM, TO, AUTHOR, CLIENT, CHANGE_TYPE, PATH)
PAGING = (SIZE, TOKEN)
ANSWER_FORM = (INCLUDE, ZONE)
ENTITY_PATH = (ENTITY, IDENTIFIER)
CHANGES = (
    *PAGING,
    _make_query_parameter(
        "lateSince",
        Annotated[str, Meta(pattern="^v1:", max_length=TOKEN_LENGTH)],
        "The token of a page with order=asc and without `to`: what was stored since for moments "
        "that this feed had passed, in the order in which it was stored.",
    ),
    ORDER,
    _make_query_parameter(
        "from", Moment, "From this moment on; where not given, a day before `to`."
    ),
    _make_query_parameter(
        "to",
        Moment,
        "Before this moment; where not given, now. With order=asc no page passes completeTo: "
        "without `to` every page has a token, which gives what came since.",
    ),
    AUTHOR,
    CLIENT,
    _make_query_parameter("entity", KindName, "Only versions of this kind."),
    CHANGE_TYPE,
    PATH,
    *ANSWER_FORM,
)
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
    make_schema(Annotated[str, choose_from(state.value for state in FallbackState)]),
    "header",
    description="Whether the old service answered; absent where it was not asked.",
    response=[200, 404],
)


_CODES: dict[int, list[str]] = {}
for _, _status, _code in errors.ERROR_KINDS:
    # Calls do not answer unknown_address, which is for addresses without a call.
    if _code not in ("unknown_address", *_CODES.get(_status, ())):
        _CODES.setdefault(_status, []).append(_code)

# The types of all answers, in the order in which the calls are described.
ANSWERS: Final[list[type[Answer]]] = [ErrorAnswer]


def describe_call(
    name: str,
    summary: str,
    *parameters: OpenApiParameter,
    data: type[Answer],
    may_be_missing: bool = True,
    has_etag: bool = False,
) -> Callable[[V], V]:
    """Decorate a view with the description of its call.

    Args:
        name: The name of the call in the OpenAPI document.
        summary: One sentence on what the call answers.
        parameters: The parameters of the path and of the query.
        data: The type of the answer's `data`.
        may_be_missing: Whether the call may answer 404.
        has_etag: Whether the call may answer 304.
    """
    ANSWERS.append(data)
    envelope = make_schema(SuccessEnvelope[data])  # type: ignore[valid-type] # of the call
    answers: dict[int, OpenApiResponse] = {200: OpenApiResponse(envelope, "Found.")}
    for status, codes in _CODES.items():
        if status != 404 or may_be_missing:
            answers[status] = OpenApiResponse(make_schema(ErrorAnswer), ", ".join(codes))
    if has_etag:
        parameters = (*parameters, _ETAG)
        answers[304] = OpenApiResponse(None, "The client has this answer.")
    described = extend_schema(
        operation_id=name,
        summary=summary,
        parameters=[*parameters, _REQUEST_ID, _RETRY, _FALLBACK],
        responses=answers,
        tags=["completeness" if name == "completeness" else "history"],
    )
    names = frozenset(parameter.name for parameter in parameters if parameter.location == "query")

    def apply(view: V) -> V:
        view.accepts = names
        return extend_schema_view(get=described)(view)

    return apply
