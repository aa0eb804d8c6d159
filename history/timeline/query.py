"""Queries of a timeline, and the errors for queries that cannot be answered."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, StrEnum

from django.utils.translation import gettext as _

from history.documents.record import ID_LENGTH, ChangeType
from history.kinds.entities import EntityKind

DEFAULT_PAGE_SIZE = 50
MAX_PAGE_SIZE = 500


class TimelineSort(Enum):
    """Whether a timeline is ordered by moment or by version number.

    Versions with the same moment are ordered by number. Versions with the same number are ordered
    by moment.
    """

    UPDATED_AT = "updatedAt"
    VERSION = "version"


class TimelineOrder(Enum):
    DESC = "desc"
    ASC = "asc"


class Include(StrEnum):
    """The expensive parts of a version that an answer has only on request.

    The snapshot is always read, even if the answer does not have it.
    """

    ENTITY = "entity"  # the snapshot
    DIFF = "diff"  # the RFC 6902 patch
    CHANGES = "changes"  # the same differences, for people


EVERYTHING = frozenset(Include)


class BadParameterError(ValueError):
    """Raised for a parameter with a bad value.

    Args:
        name: The name of the parameter in the API.
        reason: What is wrong with the value, in words.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name


class ArchiveUnavailableError(RuntimeError):
    """Raised when the archive does not answer, or one of its files is missing or broken."""


class Absence(Enum):
    """Why the store cannot show a version that the producer made, or probably made."""

    REMOVED = "removedByRetention"
    ARCHIVED = "inArchive"  # the archive may have it: ask with archive=true
    NEVER_ARRIVED = "neverArrived"
    # It arrived, but could not be stored. For a range of missing versions: at least one of them.
    QUARANTINED = "inQuarantine"
    UNKNOWN = "unknown"  # removed or never arrived
    DAMAGED = "damaged"  # it is stored, and cannot be read

    @property
    def was_kept(self) -> bool:
        """Whether the version was possibly stored at some time. False: it was never stored."""
        return self not in (Absence.NEVER_ARRIVED, Absence.QUARANTINED)


class FallbackState(Enum):
    """Whether the old service answered the calls of one request."""

    ANSWERED = "answered"  # it answered all calls
    FAILED = "failed"  # a call failed, or the answer lacks versions for another reason


class NotFoundError(LookupError):
    """Raised when there is nothing to show. The subclass tells the cause.

    Args:
        message: A sentence on what was not found.
        version: The requested number. None if no number was requested, or if the store does not
            have any version of the document.
        reason: Why the version is not in the store; None if it probably never existed.
    """

    def __init__(
        self, message: str, version: int | None = None, reason: Absence | None = None
    ) -> None:
        super().__init__(message)
        self.version = version
        self.reason = reason


class NoVersionError(NotFoundError):
    """Raised when the store has no such version, or no version of the document at all."""


def is_storable_id(id: str, length: int = ID_LENGTH) -> bool:
    """Return whether a text can be stored as an id or as a business key.

    Args:
        length: How many characters the text may have. The default is for ids of documents.
    """
    return 0 < len(id) <= length and "\0" not in id


def make_unknown_error(
    entity: EntityKind | None, id: str, *, archive: bool = False
) -> NoVersionError:
    """Make the error for a document or application that has no version in the store.

    Args:
        entity: None for an application.
        archive: Whether the archive was read too.
    """
    if entity is None:
        return NoVersionError(_("the store has nothing of application {id}").format(id=id))
    text = _("the store has no version of {kind} {id}")
    if archive:
        text = _("neither store nor archive has a version of {kind} {id}")
    return NoVersionError(text.format(kind=entity.name, id=id))


class OlderThanRetentionError(NotFoundError):
    """Raised when retention has removed the requested versions, or may have removed them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFilters:
    """Which versions to show. None in a field selects all versions."""

    since: datetime | None = None  # aware, included
    until: datetime | None = None  # aware, not included
    author: str | None = None
    client_id: str | None = None
    type: ChangeType | None = None
    # a pointer or key path: selects the versions that changed something at, below or around it; the
    # first version of a document changed nothing
    path: str | None = None

    @property
    def may_skip_versions(self) -> bool:
        """Whether the filters may leave out versions between two versions that they select."""
        return (self.author, self.client_id, self.type) != (None, None, None)


NO_FILTERS = VersionFilters()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineQuery:
    """A request for one page of a timeline."""

    # None: the merged timeline of an application with its children, by time
    entity: EntityKind | None = None
    id: str
    filters: VersionFilters = NO_FILTERS
    sort: TimelineSort = TimelineSort.UPDATED_AT
    order: TimelineOrder = TimelineOrder.DESC
    page_size: int = DEFAULT_PAGE_SIZE
    page_token: str | None = None  # next_token of the page before
    include: frozenset[Include] = EVERYTHING
    archive: bool = False  # whether to read the archived versions of the document too

    @property
    def binding(self) -> tuple[object, ...]:
        """The values that must be the same in the requests for all pages. See `issue_token`."""
        if self.entity is None:
            return ("application", self.id, self.order, self.filters)
        subject = (self.entity.name, self.id, self.archive)
        return ("timeline", *subject, self.sort, self.order, self.filters)


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
