"""Every SQLSTATE has one cause, and only the rows' own errors can bring a row to quarantine."""

import psycopg
import pytest
from psycopg import errors

from ingest.store.sqlstate import (
    ErrorCause,
    classify_error,
    convert_shard_error,
    is_missing_partition,
)

KNOWN = {
    each.sqlstate
    for each in vars(errors).values()
    if isinstance(each, type) and isinstance(vars(each).get("sqlstate"), str)
}

# Each class, as the appendix of the PostgreSQL manual lists them, with the cause of its codes
# except those below.
CLASSES = {
    ErrorCause.OUTAGE: "08 40 53 55 57 58 72",
    ErrorCause.BATCH: "21 22 23 54",
    ErrorCause.INSTALLATION: "02 03 09 0A 0B 0F 0L 0P 0Z 10 20 24 25 26 27 28 2B 2D 2F 34 38 39"
    " 3B 3D 3F 42 44 F0 HV P0 XX",
}

# Codes that differ from their class.
NOTABLE = {
    ErrorCause.OUTAGE: "ReadOnlySqlTransaction InFailedSqlTransaction"
    " IdleInTransactionSessionTimeout TransactionTimeout",
    ErrorCause.BATCH: "RaiseException",
    ErrorCause.INSTALLATION: "InvalidParameterValue InvalidBinaryRepresentation BadCopyFileFormat"
    " NotNullViolation TooManyColumns CantChangeRuntimeParam DatabaseDropped",
}


def raised(state: str) -> psycopg.Error:
    error = (errors.lookup(state) if state in KNOWN else psycopg.Error)("said")
    error.sqlstate = state  # type: ignore[misc]
    return error


def test_every_class_of_postgresql_is_in_the_table_above() -> None:
    assert len(KNOWN) > 250
    named = [each for classes in CLASSES.values() for each in classes.split()]
    assert sorted(named) == sorted({state[:2] for state in KNOWN})


@pytest.mark.parametrize(
    "wanted, name", [(wanted, name) for wanted, each in CLASSES.items() for name in each.split()]
)
def test_a_new_code_of_a_class_counts_as_the_class_does(wanted: ErrorCause, name: str) -> None:
    assert classify_error(raised(f"{name}ZZZ")) is wanted


@pytest.mark.parametrize(
    "wanted, name", [(wanted, name) for wanted, names in NOTABLE.items() for name in names.split()]
)
def test_notable_codes(wanted: ErrorCause, name: str) -> None:
    assert classify_error(getattr(errors, name)("said")) is wanted


def test_nothing_else_can_bring_a_row_to_quarantine() -> None:
    """The classes of the rows' own errors, without the codes that are not; a new code of another
    class needs a decision here."""
    at_fault = {state for state in KNOWN if classify_error(raised(state)) is ErrorCause.BATCH}
    classes = {state for state in KNOWN if state[:2] in ("21", "22", "23", "54")}
    others = {"22023", "22P03", "22P04", "23502", "54011", "54023"}
    # A check_violation without a constraint is a missing partition, see below.
    assert at_fault == (classes - others - {"23514"}) | {"P0001"}


@pytest.mark.parametrize(
    "error, wanted",
    [
        (psycopg.OperationalError("server closed the connection"), ErrorCause.OUTAGE),
        (psycopg.InterfaceError("the connection is closed"), ErrorCause.OUTAGE),
        (psycopg.DataError("PostgreSQL text fields cannot contain NUL"), ErrorCause.BATCH),
        (psycopg.ProgrammingError("cannot adapt type"), ErrorCause.INSTALLATION),
        (raised("ZZ123"), ErrorCause.INSTALLATION),
        # A missing partition is waited for.
        (errors.CheckViolation("no partition of relation found for row"), ErrorCause.OUTAGE),
    ],
    ids=repr,
)
def test_errors_without_a_known_code(error: psycopg.Error, wanted: ErrorCause) -> None:
    assert classify_error(error) is wanted


@pytest.mark.parametrize(
    "text, expected",
    [
        ('duplicate key violates "product_task_aud_20261123_pkey_102589"', errors.UniqueViolation),
        ("«product_task_aud_20261123_pkey_102589»", errors.UniqueViolation),
        ('no partition of relation "product_task_aud_102008" found', errors.CheckViolation),
        ("server closed the connection unexpectedly\n\tThis", errors.ConnectionFailure),
        ("something else in product_task_aud_20261123_102008", errors.InternalError_),
    ],
)
def test_what_a_shard_refuses(text: str, expected: type[psycopg.Error]) -> None:
    found = convert_shard_error(errors.InternalError_(text), "product_task_aud")
    assert type(found) is expected
    assert is_missing_partition(found) is (expected is errors.CheckViolation)
