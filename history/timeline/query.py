"""Queries of a timeline, the errors for those that cannot be answered, and page tokens.

A page token is signed, and valid only for the query that it was made for.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, StrEnum
from typing import Any

from django.core import signing
from django.utils.translation import gettext as _

from history.documents.record import ID_LENGTH, ChangeType
from history.kinds.entities import EntityKind

DEFAULT_PAGE_SIZE = 50
MAX_PAGE_SIZE = 500


class TimelineSort(Enum):
    """The value by which a timeline is ordered; the other one breaks ties."""

    UPDATED_AT = "updatedAt"
    VERSION = "version"


class TimelineOrder(Enum):
    DESC = "desc"
    ASC = "asc"


class Include(StrEnum):
    """The expensive parts of a version. The snapshot itself is always read. DIFF: the RFC 6902
    patch. CHANGES: the same for people."""

    ENTITY = "entity"
    DIFF = "diff"
    CHANGES = "changes"


EVERYTHING = frozenset(Include)


class BadParameterError(ValueError):
    """A parameter with a bad value. name: its name in the API."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name


class ArchiveUnavailableError(RuntimeError):
    """The archive does not answer, or a file of it is missing or broken."""


class Absence(Enum):
    """Why a version that existed is not in the store."""

    REMOVED = "removedByRetention"
    ARCHIVED = "inArchive"  # the archive may have it: ask with archive=true
    NEVER_ARRIVED = "neverArrived"
    QUARANTINED = "inQuarantine"  # it came, or some of several came, and could not be stored
    UNKNOWN = "unknown"  # removed or never arrived
    DAMAGED = "damaged"  # it is stored, and cannot be read

    @property
    def was_kept(self) -> bool:
        """Whether the store may have had it."""
        return self not in (Absence.NEVER_ARRIVED, Absence.QUARANTINED)


class FallbackState(Enum):
    """How the questions went that one request asked the old service."""

    ANSWERED = "answered"
    FAILED = "failed"  # of at least one


class NotFoundError(LookupError):
    """There is nothing to show. The subclass says why."""

    def __init__(self, reason: str, version: int | None = None, why: Absence | None = None) -> None:
        super().__init__(reason)
        self.version = version
        self.why = why


class NoVersionError(NotFoundError):
    """The store has no such version, or no version of the entity at all."""


def is_storable_id(id: str, length: int = ID_LENGTH) -> bool:
    """Return whether an entity can have this id. With a length: a document this business key."""
    return 0 < len(id) <= length and "\0" not in id


def make_unknown_error(
    entity: EntityKind | None, id: str, *, archive: bool = False
) -> NoVersionError:
    """Make the error for an entity of which the store has nothing.

    Args:
        entity: None for an application.
        archive: Whether the archive was asked too.
    """
    if entity is None:
        return NoVersionError(_("the store has nothing of application {id}").format(id=id))
    text = _("the store has no version of {kind} {id}")
    if archive:
        text = _("neither store nor archive has a version of {kind} {id}")
    return NoVersionError(text.format(kind=entity.name, id=id))


class OlderThanRetentionError(NotFoundError):
    """Everything that is asked for is older than the days that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFilters:
    """Which versions to show. Times are aware and half-open: since <= updated_at < until.

    `path` keeps the versions that changed something at, below or around this pointer or key
    path; the first version of an entity changed nothing.
    """

    since: datetime | None = None
    until: datetime | None = None
    author: str | None = None
    client_id: str | None = None
    type: ChangeType | None = None
    path: str | None = None

    @property
    def by_row(self) -> bool:
        """Whether the database may leave out rows between two rows that it gives."""
        return (self.author, self.client_id, self.type) != (None, None, None)


NO_FILTERS = VersionFilters()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineQuery:
    """A question for one page of a timeline."""

    # None: the merged timeline of an application with its children, by time
    entity: EntityKind | None = None
    id: str
    filters: VersionFilters = NO_FILTERS
    sort: TimelineSort = TimelineSort.UPDATED_AT
    order: TimelineOrder = TimelineOrder.DESC
    page_size: int = DEFAULT_PAGE_SIZE
    page_token: str | None = None  # next_token of the page before
    include: frozenset[Include] = EVERYTHING
    archive: bool = False  # also the versions of the entity that are in the archive

    @property
    def binding(self) -> tuple[object, ...]:
        """The values that must stay the same from page to page."""
        if self.entity is None:
            return ("application", self.id, self.order, self.filters)
        subject = (self.entity.name, self.id, self.archive)
        return ("timeline", *subject, self.sort, self.order, self.filters)


PREFIX = "v1:"  # of a token
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def issue_token(
    binding: tuple[object, ...], position: tuple[Any, ...], *, compress: bool = True
) -> str:
    """Make the page token of a position.

    Args:
        binding: The values that the next request must not change.
        compress: Costs more time than everything else here; a TimelinePosition does not get
            shorter.
    """
    values = [
        {"us": (value - EPOCH) // MICROSECOND} if isinstance(value, datetime) else value
        for value in position
    ]
    return PREFIX + signing.dumps(values, salt=_make_salt(binding), compress=compress)


def read_token(binding: tuple[object, ...], token: str, parameter: str = "pageToken") -> list[Any]:
    """Return the position in a page token, moments as aware datetimes in UTC.

    Args:
        parameter: The parameter that has the token.

    Raises:
        BadParameterError: The token has a wrong signature or belongs to another query.
    """
    try:
        values = signing.loads(token.removeprefix(PREFIX), salt=_make_salt(binding))
    except signing.BadSignature:
        values = None
    if values is None or not token.startswith(PREFIX):
        raise BadParameterError(
            parameter,
            _("is not a token of this call with these parameters; start again without it"),
        )
    return [
        EPOCH + value["us"] * MICROSECOND if isinstance(value, dict) else value for value in values
    ]


def _make_salt(binding: tuple[object, ...]) -> str:
    return "history.page " + repr([_to_comparable(value) for value in binding])


def _to_comparable(value: object) -> object:
    """Return a value whose repr is the same in every process and for every notation of one
    moment.
    """
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, Enum):
        return value.name
    if hasattr(value, "__dataclass_fields__"):
        return [_to_comparable(getattr(value, name)) for name in value.__dataclass_fields__]
    return value
