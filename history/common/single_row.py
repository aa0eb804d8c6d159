"""Rows of statements that always return one."""

from typing import TypeVar

Row = TypeVar("Row")


class MissingRowError(RuntimeError):
    """Raised if a statement returned no row although it always returns one: a program error."""


def require_row(row: Row | None) -> Row:
    """Return the row of an aggregate, or of another statement that always returns one.

    Raises:
        MissingRowError: There is no row.
    """
    if row is None:
        raise MissingRowError("a statement that always returns a row returned none")
    return row
