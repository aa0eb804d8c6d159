"""The classes that declare a kind of documents, and the interface of tables with sealed days."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Annotated, Literal, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec import Meta

Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200)]


class CanonicalForm(Enum):
    """The encoding of a column's values as canonical bytes. Seals are digests of these bytes."""

    TEXT = "text"
    NUMBER = "number"  # never NULL
    MOMENT = "moment"  # microseconds since the epoch; never NULL
    JSON = "json"  # PostgreSQL's text of the JSONB


class CanonicalColumn(NamedTuple):
    """A column of a table, and the canonical form of its values."""

    name: str
    form: CanonicalForm


class DayClosing(NamedTuple):
    """The rule that says when the days of a table are sealed and dropped.

    Only for a table that never gets rows for past days.
    """

    kept_days: int  # retention drops a day that is older than this
    seal_after: int  # how many days after its end a day is sealed; 0: never


class DayRows(Protocol):
    """A table with one partition for each day, in which finished days are sealed.

    Attributes:
        columns: The sealed columns, in the canonical order.
        order: The unique columns by which rows are sorted. Texts are sorted by their bytes.
        display_key: Two SQL expressions, a text and an integer. They identify a row for people.
        closing: When days are sealed and dropped, for a table that never gets rows for past days.
            None if the table can get rows for past days.
    """

    @property
    def table(self) -> str: ...
    @property
    def columns(self) -> Sequence[CanonicalColumn]: ...
    @property
    def order(self) -> Sequence[str]: ...
    @property
    def display_key(self) -> tuple[str, str]: ...
    @property
    def closing(self) -> DayClosing | None: ...


class DeclaredLabel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The label of a field in the snapshots of a kind."""

    path: Annotated[str, Meta(max_length=300)]  # with * for any item or key
    en: Text | None = None  # a label has en, ru or both
    ru: Text | None = None
    kind: Literal["text", "money", "percent", "date", "enum", "person", "technical"] = "text"
    # for kind "enum": by value, its name in each language
    words: dict[str, dict[Literal["en", "ru"], Text]] = {}
    sensitive: bool = False


class EnvelopeForm(StrEnum):
    """The form of the envelope around the snapshot in a message."""

    PLAIN = "plain"
    CLOUDEVENTS = "cloudevents"
    DEBEZIUM = "debezium"


@dataclass(frozen=True, slots=True)
class EnvelopeDeclaration:
    """The envelope of a kind: where its messages have the fields of the message contract."""

    form: EnvelopeForm
    # pairs of the name of a field in the contract, and its JSON pointer into the message, or into
    # the row of a Debezium event
    pointers: tuple[tuple[str, str], ...]
    # pairs of a word that messages use, and the type that it means: CREATE, UPDATE or DELETE
    types: tuple[tuple[str, str], ...]
    time_unit: str | None = None  # the unit of a numeric updatedAt; None: ISO 8601
    client: str | None = None  # the clientId of all messages; None if messages have the field
    placeholder: str | None = None  # what Debezium writes in place of an unavailable value


# Compared by identity: each kind is one object, and often the key of a dictionary.
@dataclass(frozen=True, slots=True, eq=False)
class EntityKind:
    """A kind of documents, as the file of kinds declares it."""

    name: str
    title: str
    title_ru: str
    topics: tuple[str, ...]  # the live topic and its migration twin, if any
    root: bool = False  # whether this is the main kind: its documents are the applications
    # the field that names the application; None for the main kind and a kind that stands alone
    parent: str | None = None
    # the business keys: pairs of a name and a JSON pointer; a name may have several pointers
    search: tuple[tuple[str, str], ...] = ()
    # fields that identify the items of lists in comparisons
    list_keys: tuple[str, ...] = ("pid", "id")
    # fields for single lists, which replace list_keys: pairs of a list's pointer and the fields
    list_places: tuple[tuple[str, tuple[str, ...]], ...] = ()
    created_at: str = "createdAt"  # the field of the snapshot with the moment of creation
    closed_at: str | None = None  # the field of the snapshot with the moment of closing
    labels: tuple[DeclaredLabel, ...] = ()
    # the envelope of this kind's messages; None: the envelope of the message contract
    envelope: EnvelopeDeclaration | None = None

    @property
    def is_standalone(self) -> bool:
        """Whether documents of this kind do not belong to an application."""
        return not self.root and self.parent is None

    @property
    def table(self) -> str:
        return self.name.replace("-", "_") + "_aud"

    @property
    def model_name(self) -> str:
        return self.name.title().replace("-", "") + "Aud"

    @property
    def columns(self) -> tuple[CanonicalColumn, ...]:
        """The columns of this kind's table, in the canonical order. See DayRows."""
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
    def display_key(self) -> tuple[str, str]:
        return ("id", "version")

    @property
    def closing(self) -> None:
        """Always None, because a late message can add rows to a past day of the table."""
