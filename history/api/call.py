"""What every call of the API does: reads the request, answers in the envelope."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, ClassVar

from django.http import HttpResponse
from django.utils.translation import gettext as _
from rest_framework.request import Request
from rest_framework.views import APIView

from history import complete_to, timeline
from history.addresses import RAW_PATH
from history.api import access, answers
from history.api.answers import Answer, AnswerFormat
from history.api.errors import UnknownEntityError, encoded
from history.api.parameters import TOKEN_LENGTH, Parameters, one_of
from history.api.revalidation import revalidated
from history.base.language import language_of
from history.complete_to import Completeness
from history.database import prepared
from history.entities import BY_NAME, ENTITIES, Entity
from history.fallback.client import PAUSE_SECONDS
from history.held_messages import NO_OPEN_MESSAGES, OpenMessages
from history.record import AUTHOR_LENGTH, CLIENT_ID_LENGTH, MAX_VERSION, ChangeType
from history.requests import accesses, worker_shares
from history.timeline import (
    BadParameterError,
    Filters,
    Include,
    OpenQuestion,
    Order,
    Query,
    Reader,
)
from history.timeline.query import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE, AskedState, storable

# What came of asking the old service; also on errors.
OLD_SERVICE = "X-Annals-Fallback"


class Options(APIView):
    """A view that is read only, and says so to OPTIONS. Before that it asks who asks, as for
    GET."""

    http_method_names = ["get", "head", "options"]

    def options(self, request: Any, *_: Any, **__: Any) -> Any:  # noqa: ARG002
        answer = HttpResponse(status=204)
        del answer.headers["Content-Type"]
        return answer


@dataclass(frozen=True, slots=True)
class Question:
    """One request. output: of the answer. address: parts of the path. reader: who asks.
    open_messages: gives the messages in quarantine about the document or application of the
    address; to be called after its versions were read."""

    parameters: Parameters
    output: AnswerFormat
    address: Mapping[str, str]
    reader: Reader
    open_messages: Callable[[], OpenMessages] = lambda: NO_OPEN_MESSAGES

    @property
    def id(self) -> str:
        """The id of the entity or of the application."""
        return self.address.get("id") or self.address["productInstanceId"]

    @property
    def entity(self) -> Entity:
        """The kind of entity that the address names. Raises UnknownEntityError."""
        try:
            return BY_NAME[self.address["entity"]]
        except KeyError:
            raise UnknownEntityError(
                _("there is no kind of entity of this name; there are {names}").format(
                    names=", ".join(BY_NAME)
                )
            ) from None

    @property
    def kinds(self) -> Sequence[Entity]:
        """The kinds that the answer may show: the one in the address, else all."""
        return [self.entity] if "entity" in self.address else ENTITIES

    @property
    def about(self) -> OpenQuestion | None:
        """The question for what is in quarantine; None where the address names no document."""
        if "entity" in self.address:
            return OpenQuestion.about(self.kinds, self.entity, self.id)
        if "productInstanceId" in self.address:
            return OpenQuestion.about(self.kinds, None, self.id)
        return None

    def page_size(self) -> int:
        return self.parameters.number("pageSize", 1, MAX_PAGE_SIZE) or DEFAULT_PAGE_SIZE

    def page_token(self) -> str | None:
        return self.parameters.text("pageToken", TOKEN_LENGTH)

    def after(self, name: str) -> int:
        """How many entries of a list the caller has already."""
        return self.parameters.number(name, 0, MAX_VERSION) or 0

    def page(self, **more: Any) -> Query:
        """The page that is asked for, with its filters. more: as in Query."""
        return Query(
            id=self.id,
            filters=self._filters(),
            order=self.parameters.choice("order", Order, Order.DESC),
            page_size=self.page_size(),
            page_token=self.page_token(),
            include=self.output.include,
            **more,
        )

    def _filters(self) -> Filters:
        parameters, zone = self.parameters, self.output.zone
        given = parameters.text("type")
        if given is not None and given not in ChangeType.__members__:
            raise BadParameterError("type", one_of(ChangeType.__members__))
        return Filters(
            since=parameters.moment("from", zone),
            until=parameters.moment("to", zone),
            author=parameters.text("author", AUTHOR_LENGTH),
            client_id=parameters.text("clientId", CLIENT_ID_LENGTH),
            type=ChangeType[given] if given else None,
            path=parameters.text("path", length=None),
        )


class Call(Options):
    """A call of the API. describe.call sets `accepts`, the names of its query parameters."""

    permission: ClassVar[str] = access.READ_HISTORY
    accepts: ClassVar[frozenset[str]] = frozenset()
    with_completeness: ClassVar[bool] = True
    expensive: ClassVar[bool] = (
        False  # reads many versions for one answer: see requests.worker_shares
    )
    # The client may keep the answer, and asks with its ETag whether it is still right.
    has_etag: ClassVar[bool] = False
    reader: Reader | None = None

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """The answer, errors included, with what came of asking the old service."""
        answer = super().finalize_response(request, response, *args, **kwargs)
        state = self.reader.old.state if self.reader is not None else None
        if state is not None:
            answer.headers[OLD_SERVICE] = state.value
            if state is AskedState.FAILED:
                answer.headers.setdefault("Retry-After", str(int(PAUSE_SECONDS)))
        return answer

    def get(self, request: Request, **address: str) -> HttpResponse:
        _check_address(request, address)
        parameters = Parameters(request.query_params, self.accepts, request.META["QUERY_STRING"])
        include = parameters.members("include", Include) if "include" in self.accepts else None
        output = AnswerFormat(
            include=frozenset({Include.ENTITY}) if include is None else include,
            zone=parameters.zone(),
            language=language_of(request),
        )
        self.reader = timeline.of_request(request.user, accesses.of(request))
        question = Question(parameters, output, address, self.reader)
        with (
            worker_shares.of_login(request.user.pk),
            worker_shares.expensive(self.is_expensive(question)),
        ):
            # Before the data: what is read in between may be in the answer, but is not promised.
            state, messages = _standing(question, with_completeness=self.with_completeness)
            question = replace(question, open_messages=messages)
            data = self.answer(question)
            found = messages()
        data |= answers.fallback(self.reader.old.state)
        if question.about is not None:
            data |= answers.quarantined(found, output)
        if state is not None:
            of = found if question.about is not None else None
            data["completeness"] = answers.completeness(state, output, data.get("history"), of)
        answer = encoded({"status": "success", "data": data}, output.language)
        return revalidated(request, answer) if self.has_etag else answer

    def is_expensive(self, question: Question) -> bool:  # noqa: ARG002 - some calls ask it
        """Whether this question is expensive."""
        return self.expensive

    def answer(self, question: Question) -> Answer:
        """The `data` of the envelope, without the completeness block."""
        raise NotImplementedError


def _standing(
    question: Question, *, with_completeness: bool
) -> tuple[Completeness | None, Callable[[], OpenMessages]]:
    """Read how complete the store is, and what is in quarantine, in one round trip. The second is
    told by the reader, once the versions were read."""
    about = question.about
    if about is None or not storable(question.id):
        state = complete_to.read(question.kinds) if with_completeness else None
        return state, lambda: NO_OPEN_MESSAGES
    state = None
    if with_completeness:
        state, rows = complete_to.read_with_messages(about)
    else:
        rows = prepared.fetch(*about.statement)
    return state, cache(partial(question.reader.open_messages, about, rows))


def _check_address(request: Request, address: Mapping[str, str]) -> None:
    """Refuse an id that no entity can have. Django would read the byte %FF as the text "%FF"."""
    for name in address.keys() & {"id", "productInstanceId"}:
        try:
            request.META.get(RAW_PATH, "").encode("latin-1").decode()
        except UnicodeDecodeError:
            raise BadParameterError(name, _("has bytes that are not UTF-8")) from None
        if "\0" in address[name]:
            raise BadParameterError(name, _("has a NUL character"))
