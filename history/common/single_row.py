"""Gets the row of a statement that always returns one row."""

from typing import TypeVar

Row = TypeVar("Row")


class MissingRowError(RuntimeError):
    """Raised if a statement that always returns a row returned none, which is a program error."""


def require_row(row: Row | None) -> Row:
    """Return the row of a statement that always returns one, such as an aggregate.

    Raises:
        MissingRowError: `row` is None.
    """
    if row is None:
        raise MissingRowError("a statement that always returns a row returned none")
    return row
