"""What every view of the API does: reads the request, answers in the envelope."""

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
    HeldDocumentMessage,
    SuccessEnvelope,
    VersionAnswer,
)
from history.api.answers import AnswerFormat
from history.api.errors import UnknownEntityError
from history.api.parameters import TOKEN_LENGTH, QueryParameters, explain_choices
from history.common import worker_shares
from history.common.addresses import RAW_PATH
from history.common.answer_types import Answer
from history.common.error_answers import encode_answer
from history.common.language import choose_language
from history.common.revalidation import revalidated
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

# What came of asking the old service; also on errors.
FALLBACK_HEADER = "X-Annals-Fallback"


class ReadOnlyView(APIView):
    """A view that is read only, and says so to OPTIONS. Before that it asks who asks, as for
    GET."""

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
    address: Mapping[str, str]  # the parts of the path
    reader: HistoryReader
    # gives the messages in quarantine about the document; call it after its versions were read
    open_messages: Callable[[], OpenMessages] = lambda: NO_OPEN_MESSAGES
    # how complete the store was before anything was read; None if the answer does not say it
    store_state: StoreCompleteness | None = None

    @property
    def id(self) -> str:
        """The id of the entity or of the application."""
        return self.address.get("id") or self.address["productInstanceId"]

    @property
    def entity(self) -> EntityKind:
        """The entity kind that the address names.

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
        """The kinds that the answer may show: the one in the address or the parameters, or all."""
        if "entity" in self.address:
            return [self.entity]
        kind = self.read_kind()
        return ENTITIES if kind is None else [kind]

    def read_kind(self) -> EntityKind | None:
        """Return the kind that the parameter `entity` names; None if it is not given."""
        name = self.parameters.read_text("entity")
        return None if name is None else find_kind(name)

    @property
    def about(self) -> OpenMessagesQuestion | None:
        """The question for what is in quarantine; None where the address names no document."""
        if "entity" in self.address:
            return OpenMessagesQuestion.about(self.kinds, self.entity, self.id)
        if "productInstanceId" in self.address:
            return OpenMessagesQuestion.about(self.kinds, None, self.id)
        return None

    @property
    def fallback(self) -> FallbackOutcome | UnsetType:
        """How the old service answered. Use it after everything was read."""
        return answers.make_fallback(self.reader.old.state)

    @property
    def quarantined(self) -> list[HeldDocumentMessage]:
        """The messages in quarantine that the answer lists. Use it after the versions were read."""
        return answers.list_quarantined(self.open_messages(), self.output)

    @property
    def quarantined_count(self) -> int:
        return self.open_messages().count

    @property
    def complete_to(self) -> datetime | None:
        """The moment up to which the store was complete before the versions are read."""
        return self.store_state.complete_to if self.store_state else None

    def make_completeness(
        self, versions: Sequence[VersionAnswer] | None = None
    ) -> CompletenessAnswer:
        """Return how complete the store is.

        Args:
            versions: Those of a timeline's page.
        """
        if self.store_state is None:
            raise RuntimeError("the view has with_completeness = False")
        messages = self.open_messages() if self.about is not None else None
        return answers.make_completeness(self.store_state, self.output, versions, messages)

    def read_page_size(self) -> int:
        return self.parameters.read_number("pageSize", 1, MAX_PAGE_SIZE) or DEFAULT_PAGE_SIZE

    def read_page_token(self) -> str | None:
        return self.parameters.read_text("pageToken", TOKEN_LENGTH)

    def read_after(self, name: str) -> int:
        """Return how many entries of a list the caller has already."""
        return self.parameters.read_number(name, 0, MAX_VERSION) or 0

    def make_query(self, **more: Any) -> TimelineQuery:
        """Return the timeline query of the request, with its filters. `more` has fields of
        TimelineQuery.
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
        """Return the filters of the request, as in a timeline."""
        parameters, zone = self.parameters, self.output.zone
        type_name = parameters.read_text("type")
        if type_name is not None and type_name not in ChangeType.__members__:
            raise BadParameterError("type", explain_choices(ChangeType.__members__))
        return VersionFilters(
            since=parameters.read_moment("from", zone),
            until=parameters.read_moment("to", zone),
            author=parameters.read_text("author", AUTHOR_LENGTH),
            client_id=parameters.read_text("clientId", CLIENT_ID_LENGTH),
            type=ChangeType[type_name] if type_name else None,
            path=parameters.read_text("path", length=None),
        )


class ApiView(ReadOnlyView):
    """A view of the API. describe.describe_call sets `accepts`, the names of its query
    parameters.
    """

    permission: ClassVar[str] = access.READ_HISTORY
    accepts: ClassVar[frozenset[str]] = frozenset()
    with_completeness: ClassVar[bool] = True
    expensive: ClassVar[bool] = (
        False  # reads many versions for one answer: see requests.worker_shares
    )
    # The client may keep the answer, and asks with its ETag whether it is still right.
    has_etag: ClassVar[bool] = False
    reader: HistoryReader | None = None

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Add a header that says how the old service answered, also to errors."""
        answer = super().finalize_response(request, response, *args, **kwargs)
        state = self.reader.old.state if self.reader is not None else None
        if state is not None:
            answer.headers[FALLBACK_HEADER] = state.value
            if state is FallbackState.FAILED:
                answer.headers.setdefault("Retry-After", str(int(PAUSE_SECONDS)))
        return answer

    def get(self, request: Request, **address: str) -> HttpResponse:
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
            # Before the data: what is read in between may be in the answer, but is not promised.
            state, messages = _read_standing(api_request, with_completeness=self.with_completeness)
            api_request = replace(api_request, open_messages=messages, store_state=state)
            data = self.make_answer(api_request)
        answer = encode_answer(SuccessEnvelope(status="success", data=data), output.language)
        return revalidated(request, answer) if self.has_etag else answer

    def is_expensive(self, request: ApiRequest) -> bool:  # noqa: ARG002 - some calls ask it
        """Return whether this request is expensive."""
        return self.expensive

    def make_answer(self, request: ApiRequest) -> Answer:
        """Return the `data` of the envelope."""
        raise NotImplementedError


def find_kind(name: str) -> EntityKind:
    """Return the kind of this name, which the parameter `entity` has.

    Raises:
        BadParameterError: There is no such kind.
    """
    if name not in BY_NAME:
        raise BadParameterError("entity", explain_choices(BY_NAME))
    return BY_NAME[name]


def _read_standing(
    question: ApiRequest, *, with_completeness: bool
) -> tuple[StoreCompleteness | None, Callable[[], OpenMessages]]:
    """Read how complete the store is, and what is in quarantine, in one round trip. The second is
    told by the reader, once the versions were read."""
    about = question.about
    if about is None or not is_storable_id(question.id):
        state = complete_to.read_completeness(question.kinds) if with_completeness else None
        return state, lambda: NO_OPEN_MESSAGES
    state = None
    if with_completeness:
        state, rows = complete_to.read_completeness_and_messages(about)
    else:
        rows = prepared.fetch_rows(*about.statement)
    return state, cache(partial(timeline.select_open_messages, question.reader, about, rows))


def _check_address(request: Request, address: Mapping[str, str]) -> None:
    """Refuse an id that no entity can have. Django would read the byte %FF as the text "%FF"."""
    for name in address.keys() & {"id", "productInstanceId"}:
        try:
            request.META.get(RAW_PATH, "").encode("latin-1").decode()
        except UnicodeDecodeError:
            raise BadParameterError(name, _("has bytes that are not UTF-8")) from None
        if "\0" in address[name]:
            raise BadParameterError(name, _("has a NUL character"))
