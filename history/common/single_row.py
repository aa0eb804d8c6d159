"""Raises an error if a statement that must return a row did not return one."""

from typing import TypeVar

Row = TypeVar("Row")


class MissingRowError(RuntimeError):
    """Raised if a statement returned no row although it always must return one: a program error."""


def require_row(row: Row | None) -> Row:
    """Return `row`, the first row of a statement that always returns one, such as an aggregate.

    Raises:
        MissingRowError: `row` is None.
    """
    if row is None:
        raise MissingRowError("a statement returned no row although it always must return one")
    return row
