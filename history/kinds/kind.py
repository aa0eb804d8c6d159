"""One kind of entity, and what seals must know about the rows of a table of UTC days."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Annotated, Literal, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec import Meta

Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200)]


class CanonicalForm(Enum):
    """How a column becomes canonical bytes."""

    TEXT = "text"
    NUMBER = "number"  # never NULL
    MOMENT = "moment"  # microseconds since the epoch; never NULL
    JSON = "json"  # PostgreSQL's text of the JSONB


class CanonicalColumn(NamedTuple):
    """A column of a table, and its canonical form."""

    name: str
    form: CanonicalForm


class DayClosing(NamedTuple):
    """When the days of a table get no more rows."""

    kept_days: int  # retention drops a day when it is older
    seal_after: int  # days after its end when a day is sealed; 0: never


class DayRows(Protocol):
    """The rows of a table that is partitioned by UTC day. columns: in the canonical order. order:
    the unique columns by which rows are sorted, a text by its bytes. called: SQL of a text and of
    an integer by which people find a row. closed: None where rows may come into a day later."""

    @property
    def table(self) -> str: ...
    @property
    def columns(self) -> Sequence[CanonicalColumn]: ...
    @property
    def order(self) -> Sequence[str]: ...
    @property
    def called(self) -> tuple[str, str]: ...
    @property
    def closed(self) -> DayClosing | None: ...


class DeclaredLabel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The label of a field in the snapshots of a kind."""

    path: Annotated[str, Meta(max_length=300)]  # with * for any item or key
    en: Text | None = None  # at least one of en and ru is given
    ru: Text | None = None
    kind: Literal["text", "money", "percent", "date", "enum", "person", "technical"] = "text"
    # for kind "enum": the names of each value by language
    words: dict[str, dict[Literal["en", "ru"], Text]] = {}
    sensitive: bool = False


class EnvelopeForm(StrEnum):
    """The form in which messages wrap a document."""

    PLAIN = "plain"
    CLOUDEVENTS = "cloudevents"
    DEBEZIUM = "debezium"


@dataclass(frozen=True, slots=True)
class EnvelopeDeclaration:
    """Where the messages of a kind have the fields of the contract."""

    form: EnvelopeForm
    # by the contract's names: JSON pointers into the message, or Debezium's row
    places: tuple[tuple[str, str], ...]
    types: tuple[tuple[str, str], ...]  # by spelling: CREATE, UPDATE or DELETE
    time_unit: str | None = None  # of an updatedAt that is a number; None: ISO 8601
    client: str | None = None  # the clientId of all messages; None if they say it
    placeholder: str | None = None


@dataclass(frozen=True, slots=True, eq=False)  # each is one object, and often a key
class EntityKind:
    """One kind of entity: its name in addresses and tables, and its title for people."""

    name: str
    title: str
    title_ru: str
    topics: tuple[str, ...]  # the live topic and its migration twin, if any
    root: bool = False  # the main kind, the application itself
    # the field that names the application; None for the main kind and one that stands alone
    parent: str | None = None
    # business keys: name and JSON pointer; a name may have several
    search: tuple[tuple[str, str], ...] = ()
    # fields that identify the items of lists in comparisons
    list_keys: tuple[str, ...] = ("pid", "id")
    list_places: tuple[tuple[str, tuple[str, ...]], ...] = ()  # the same for lists at given places
    created_at: str = "createdAt"  # field of the snapshot
    closed_at: str | None = None  # field of the snapshot
    labels: tuple[DeclaredLabel, ...] = ()
    envelope: EnvelopeDeclaration | None = None  # of its messages; None: that of the contract

    @property
    def alone(self) -> bool:
        """Whether its documents do not belong to an application."""
        return not self.root and self.parent is None

    @property
    def table(self) -> str:
        return self.name.replace("-", "_") + "_aud"

    @property
    def model_name(self) -> str:
        return self.name.title().replace("-", "") + "Aud"

    @property
    def columns(self) -> tuple[CanonicalColumn, ...]:
        """The columns of its table, in the canonical order; see DayRows."""
        child = (
            ()
            if self.parent is None
            else (CanonicalColumn("product_instance_id", CanonicalForm.TEXT),)
        )
        return (
            CanonicalColumn("id", CanonicalForm.TEXT),
            CanonicalColumn("version", CanonicalForm.NUMBER),
            CanonicalColumn("updated_at", CanonicalForm.MOMENT),
            CanonicalColumn("client_id", CanonicalForm.TEXT),
            CanonicalColumn("author", CanonicalForm.TEXT),
            CanonicalColumn("type", CanonicalForm.NUMBER),
            *child,
            CanonicalColumn("data", CanonicalForm.JSON),
        )

    @property
    def order(self) -> tuple[str, ...]:
        return ("id", "version", "updated_at")

    @property
    def called(self) -> tuple[str, str]:
        return ("id", "version")

    @property
    def closed(self) -> None:
        """A message may bring a version of any day."""
