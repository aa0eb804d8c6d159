"""The base class of all API views. It reads the request and wraps the data in a SuccessEnvelope."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial
from typing import Any, ClassVar

from django.http import HttpResponse
from django.utils.translation import gettext as _
from msgspec import UnsetType
from rest_framework.request import Request
from rest_framework.views import APIView

from history import timeline
from history.api import access, answers
from history.api.answer_types import (
    CompletenessAnswer,
    FallbackOutcome,
    QuarantinedDocumentEntry,
    SuccessEnvelope,
    VersionMembers,
)
from history.api.answers import AnswerFormat
from history.api.errors import UnknownEntityError
from history.api.parameters import TOKEN_LENGTH, QueryParameters, explain_choices
from history.common import worker_shares
from history.common.addresses import RAW_PATH
from history.common.answer_types import Answer
from history.common.error_answers import encode_answer
from history.common.language import choose_language
from history.common.revalidation import revalidate
from history.completeness import complete_to
from history.completeness.complete_to import StoreCompleteness
from history.documents.record import (
    AUTHOR_LENGTH,
    CLIENT_ID_LENGTH,
    MAX_VERSION,
    ChangeType,
)
from history.kinds.entities import BY_NAME, ENTITIES, EntityKind
from history.policy import access_record
from history.store.database import prepared
from history.store.quarantined_messages import NO_OPEN_MESSAGES, OpenMessages
from history.timeline import (
    BadParameterError,
    HistoryReader,
    Include,
    OpenMessagesQuestion,
    TimelineOrder,
    TimelineQuery,
    VersionFilters,
)
from history.timeline.fallback.client import PAUSE_SECONDS
from history.timeline.query import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE, FallbackState, is_storable_id

# The header that says how the old service answered. Answers with an error have the header, too.
FALLBACK_HEADER = "X-Annals-Fallback"


class ReadOnlyView(APIView):
    """A view that accepts GET, HEAD and OPTIONS.

    The answer to OPTIONS has the allowed methods, and no body. OPTIONS needs the same permission
    as GET.
    """

    http_method_names = ["get", "head", "options"]

    def options(self, request: Any, *_: Any, **__: Any) -> Any:  # noqa: ARG002
        answer = HttpResponse(status=204)
        del answer.headers["Content-Type"]
        return answer


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request to the API."""

    parameters: QueryParameters
    output: AnswerFormat  # the format of the answer
    address: Mapping[str, str]  # the variable parts of the path
    reader: HistoryReader
    # returns the messages in quarantine about the document; call it after reading its versions
    open_messages: Callable[[], OpenMessages] = lambda: NO_OPEN_MESSAGES
    # how complete the store was before versions were read; None if the answer does not say it
    store_completeness: StoreCompleteness | None = None

    @property
    def id(self) -> str:
        """The id in the address: of a document, or of an application."""
        return self.address.get("id") or self.address["productInstanceId"]

    @property
    def entity(self) -> EntityKind:
        """The kind that the address names.

        Raises:
            UnknownEntityError: There is no kind of this name.
        """
        try:
            return BY_NAME[self.address["entity"]]
        except KeyError:
            raise UnknownEntityError(
                _("there is no kind of entity of this name; there are {names}").format(
                    names=", ".join(BY_NAME)
                )
            ) from None

    @property
    def kinds(self) -> Sequence[EntityKind]:
        """The kinds that the answer may show: the kind that the request names, otherwise all."""
        if "entity" in self.address:
            return [self.entity]
        kind = self.read_kind()
        return ENTITIES if kind is None else [kind]

    def read_kind(self) -> EntityKind | None:
        """Return the kind that the parameter `entity` names, or None without the parameter."""
        name = self.parameters.read_text("entity")
        return None if name is None else find_kind(name)

    @property
    def open_messages_question(self) -> OpenMessagesQuestion | None:
        """The query for messages in quarantine about the document or application in the address.

        None if the address names neither a document nor an application.
        """
        if "entity" in self.address:
            return OpenMessagesQuestion.about(self.kinds, self.entity, self.id)
        if "productInstanceId" in self.address:
            return OpenMessagesQuestion.about(self.kinds, None, self.id)
        return None

    @property
    def fallback(self) -> FallbackOutcome | UnsetType:
        """The result of asking the old service. Use this after everything has been read."""
        return answers.make_fallback(self.reader.old_service.state)

    @property
    def quarantined(self) -> list[QuarantinedDocumentEntry]:
        """The messages in quarantine that the answer lists. Use this after reading versions."""
        return answers.list_quarantined(self.open_messages(), self.output)

    @property
    def quarantined_count(self) -> int:
        return self.open_messages().count

    @property
    def complete_to(self) -> datetime | None:
        """The moment up to which everything had been read when the request began; None: unknown."""
        return self.store_completeness.complete_to if self.store_completeness else None

    def make_completeness(
        self, versions: Sequence[VersionMembers] | None = None
    ) -> CompletenessAnswer:
        """Return the field `completeness` of the answer.

        Args:
            versions: The versions on a page of a timeline or of changes; None for other answers.
        """
        if self.store_completeness is None:
            raise RuntimeError("make_completeness() needs a view with with_completeness = True")
        messages = self.open_messages() if self.open_messages_question is not None else None
        return answers.make_completeness(self.store_completeness, self.output, versions, messages)

    def read_page_size(self) -> int:
        return self.parameters.read_number("pageSize", 1, MAX_PAGE_SIZE) or DEFAULT_PAGE_SIZE

    def read_page_token(self) -> str | None:
        return self.parameters.read_text("pageToken", TOKEN_LENGTH)

    def read_after(self, name: str) -> int:
        """Return how many entries of a list to skip, because the client already has them."""
        return self.parameters.read_number(name, 0, MAX_VERSION) or 0

    def make_query(self, **more: Any) -> TimelineQuery:
        """Return the timeline query of the request, with its filters.

        Args:
            more: Further fields of TimelineQuery.
        """
        return TimelineQuery(
            id=self.id,
            filters=self.make_filters(),
            order=self.parameters.read_choice("order", TimelineOrder, TimelineOrder.DESC),
            page_size=self.read_page_size(),
            page_token=self.read_page_token(),
            include=self.output.include,
            **more,
        )

    def make_filters(self) -> VersionFilters:
        """Return the filters in the request's parameters."""
        parameters, zone = self.parameters, self.output.zone
        type_name = parameters.read_text("type")
        if type_name is not None and type_name not in ChangeType.__members__:
            raise BadParameterError("type", explain_choices(ChangeType.__members__))
        return VersionFilters(
            since=parameters.read_moment("from", zone),
            until=parameters.read_moment("to", zone),
            author=parameters.read_login("author", AUTHOR_LENGTH),
            client_id=parameters.read_login("clientId", CLIENT_ID_LENGTH),
            type=ChangeType[type_name] if type_name else None,
            path=parameters.read_text("path", length=None),
        )


class ApiView(ReadOnlyView):
    """A view of the API."""

    # the permission that the login needs; DRF checks it by access.HasViewPermission before `get`
    permission: ClassVar[str] = access.READ_HISTORY
    # the names of the query parameters; describe.describe_call sets them
    accepts: ClassVar[frozenset[str]] = frozenset()
    with_completeness: ClassVar[bool] = True
    # Whether the view reads many versions for one answer. See history.common.worker_shares.
    expensive: ClassVar[bool] = False
    # Whether the answer has an ETag, so that a client can keep the answer and revalidate it.
    has_etag: ClassVar[bool] = False
    reader: HistoryReader | None = None

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Add the header that says how the old service answered, to errors of Annals too."""
        answer = super().finalize_response(request, response, *args, **kwargs)
        state = self.reader.old_service.state if self.reader is not None else None
        if state is not None:
            answer.headers[FALLBACK_HEADER] = state.value
            if state is FallbackState.FAILED:
                answer.headers.setdefault("Retry-After", str(int(PAUSE_SECONDS)))
        return answer

    def get(self, request: Request, **address: str) -> HttpResponse:
        """Check the request, and answer it if its login does not have too many requests at a time.

        Raises:
            BusyError: The login has too many requests, or no place for expensive requests is free.
        """
        _check_address(request, address)
        parameters = QueryParameters(
            request.query_params, self.accepts, request.META["QUERY_STRING"]
        )
        include = parameters.read_members("include", Include) if "include" in self.accepts else None
        output = AnswerFormat(
            include=frozenset({Include.ENTITY}) if include is None else include,
            zone=parameters.read_zone(),
            language=choose_language(request),
        )
        self.reader = timeline.make_request_reader(
            request.user, access_record.get_access_record(request)
        )
        api_request = ApiRequest(parameters, output, address, self.reader)
        with (
            worker_shares.count_login_request(request.user.pk),
            worker_shares.take_expensive_place(self.is_expensive(api_request)),
        ):
            # Read before the data, so that the answer has at least what its completeness promises.
            completeness, messages = load_completeness_and_messages(
                api_request, with_completeness=self.with_completeness
            )
            api_request = replace(
                api_request, open_messages=messages, store_completeness=completeness
            )
            data = self.make_answer(api_request)
        answer = encode_answer(SuccessEnvelope(status="success", data=data), output.language)
        return revalidate(request, answer) if self.has_etag else answer

    def is_expensive(self, request: ApiRequest) -> bool:  # noqa: ARG002 - some calls ask it
        """Return whether this request is expensive."""
        return self.expensive

    def make_answer(self, request: ApiRequest) -> Answer:
        """Return the field `data` of the answer."""
        raise NotImplementedError


def find_kind(name: str) -> EntityKind:
    """Return the kind with this name, which is the value of the parameter `entity`.

    Raises:
        BadParameterError: There is no kind of this name.
    """
    if name not in BY_NAME:
        raise BadParameterError("entity", explain_choices(BY_NAME))
    return BY_NAME[name]


def load_completeness_and_messages(
    request: ApiRequest, *, with_completeness: bool
) -> tuple[StoreCompleteness | None, Callable[[], OpenMessages]]:
    """Read in one round trip how complete the store is, and which messages are in quarantine.

    Returns:
        The completeness, or None if `with_completeness` is False; and a function that returns the
        messages that the viewer is allowed to know of. Call the function after reading versions.
    """
    question = request.open_messages_question
    if question is None or not is_storable_id(request.id):
        completeness = complete_to.read_completeness(request.kinds) if with_completeness else None
        return completeness, lambda: NO_OPEN_MESSAGES
    completeness = None
    if with_completeness:
        completeness, rows = complete_to.read_completeness_and_messages(question)
    else:
        rows = prepared.fetch_rows(*question.statement)
    select_messages = partial(timeline.select_open_messages, request.reader, question, rows)
    return completeness, cache(select_messages)


def _check_address(request: Request, address: Mapping[str, str]) -> None:
    """Check that the id in the address is UTF-8 without NUL, as the ids of all documents are.

    Django does not check the encoding: it reads the byte %FF as the text "%FF".

    Raises:
        BadParameterError: The id is not UTF-8, or has a NUL.
    """
    for name in address.keys() & {"id", "productInstanceId"}:
        try:
            request.META.get(RAW_PATH, "").encode("latin-1").decode()
        except UnicodeDecodeError:
            raise BadParameterError(name, _("has bytes that are not UTF-8")) from None
        if "\0" in address[name]:
            raise BadParameterError(name, _("has a NUL character"))
