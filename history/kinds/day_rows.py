"""What seals must know of the rows of a table of UTC days: columns, order, names."""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, Protocol


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
