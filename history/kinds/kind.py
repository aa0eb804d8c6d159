"""One kind of entity, as the other modules see it; and what seals must know of the rows of a table
of UTC days: columns, order, names."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Annotated, Literal, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec import Meta

Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200)]


class Form(Enum):
    """How a column becomes canonical bytes."""

    TEXT = "text"
    NUMBER = "number"  # never NULL
    MOMENT = "moment"  # microseconds since the epoch; never NULL
    JSON = "json"  # PostgreSQL's text of the JSONB


class Column(NamedTuple):
    """A column of a table, and its canonical form."""

    name: str
    form: Form


class Closed(NamedTuple):
    """Days that get no row after their end. kept_days: retention drops a day when it is older.
    seal_after: a day is sealed so many days after its end; 0: no day is."""

    kept_days: int
    seal_after: int


class DayRows(Protocol):
    """The rows of a table that is partitioned by UTC day. columns: in the canonical order. order:
    the unique columns by which rows are sorted, a text by its bytes. called: SQL of a text and of
    an integer by which people find a row. closed: None where rows may come into a day later."""

    @property
    def table(self) -> str: ...
    @property
    def columns(self) -> Sequence[Column]: ...
    @property
    def order(self) -> Sequence[str]: ...
    @property
    def called(self) -> tuple[str, str]: ...
    @property
    def closed(self) -> Closed | None: ...


class DeclaredLabel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The label of a field of a kind's snapshots. path: with * for any item or key. en, ru: at
    least one is given. words: for the kind "enum", of each value its names by language."""

    path: Annotated[str, Meta(max_length=300)]
    en: Text | None = None
    ru: Text | None = None
    kind: Literal["text", "money", "percent", "date", "enum", "person", "technical"] = "text"
    words: dict[str, dict[Literal["en", "ru"], Text]] = {}
    sensitive: bool = False


class EnvelopeForm(StrEnum):
    """What is around a document in a message."""

    PLAIN = "plain"
    CLOUDEVENTS = "cloudevents"
    DEBEZIUM = "debezium"


@dataclass(frozen=True, slots=True)
class Envelope:
    """Where the messages of a kind have the contract's fields. places: by the contract's names,
    JSON pointers into the message or Debezium's row. types: by spelling, CREATE, UPDATE or DELETE.
    time_unit: of an updatedAt that is a number; None: ISO 8601. client: the clientId of all
    messages; None where they say it. placeholder: Debezium's, if it is not the usual one."""

    form: EnvelopeForm
    places: tuple[tuple[str, str], ...]
    types: tuple[tuple[str, str], ...]
    time_unit: str | None = None
    client: str | None = None
    placeholder: str | None = None


@dataclass(frozen=True, slots=True, eq=False)  # each is one object, and often a key
class Entity:
    """One kind of entity: its name in addresses and tables, and its title for people.

    topics: the live topic and its migration twin, if any. root: the main kind, the application
    itself. parent: the field that names the application; None for the main kind and one that stands
    alone. search: business keys, each a name and a JSON pointer; a name may have several.
    list_keys: the fields that identify the items of a list in comparisons; list_places: those at
    given places. created_at, closed_at: fields of the snapshot. envelope: of its messages; None:
    that of the contract.
    """

    name: str
    title: str
    title_ru: str
    topics: tuple[str, ...]
    root: bool = False
    parent: str | None = None
    search: tuple[tuple[str, str], ...] = ()
    list_keys: tuple[str, ...] = ("pid", "id")
    list_places: tuple[tuple[str, tuple[str, ...]], ...] = ()
    created_at: str = "createdAt"
    closed_at: str | None = None
    labels: tuple[DeclaredLabel, ...] = ()
    envelope: Envelope | None = None

    @property
    def alone(self) -> bool:
        """Whether it belongs to no application."""
        return not self.root and self.parent is None

    @property
    def table(self) -> str:
        return self.name.replace("-", "_") + "_aud"

    @property
    def model_name(self) -> str:
        return self.name.title().replace("-", "") + "Aud"

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of its table, in the canonical order; see DayRows."""
        child = () if self.parent is None else (Column("product_instance_id", Form.TEXT),)
        return (
            Column("id", Form.TEXT),
            Column("version", Form.NUMBER),
            Column("updated_at", Form.MOMENT),
            Column("client_id", Form.TEXT),
            Column("author", Form.TEXT),
            Column("type", Form.NUMBER),
            *child,
            Column("data", Form.JSON),
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
