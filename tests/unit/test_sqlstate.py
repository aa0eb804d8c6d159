"""Every SQLSTATE has one cause, and only errors of a row itself bring the row to quarantine."""

import psycopg
import pytest
from psycopg import errors

from ingest.store.sqlstate import (
    ErrorCause,
    ShardConstraintError,
    classify_error,
    convert_shard_error,
    get_constraint_name,
    is_missing_partition,
)

KNOWN = {
    error.sqlstate
    for error in vars(errors).values()
    if isinstance(error, type) and isinstance(vars(error).get("sqlstate"), str)
}

# The classes of SQLSTATE in the appendix of the PostgreSQL manual, with the cause of their codes.
# NOTABLE has the codes with a different cause than the rest of their class.
CLASSES = {
    ErrorCause.OUTAGE: "08 40 53 55 57 58 72",
    ErrorCause.BATCH: "21 22 23 54",
    ErrorCause.INSTALLATION: "02 03 09 0A 0B 0F 0L 0P 0Z 10 20 24 25 26 27 28 2B 2D 2F 34 38 39"
    " 3B 3D 3F 42 44 F0 HV P0 XX",
}

# Codes with a different cause than the rest of their class.
NOTABLE = {
    ErrorCause.OUTAGE: "ReadOnlySqlTransaction InFailedSqlTransaction"
    " IdleInTransactionSessionTimeout TransactionTimeout",
    ErrorCause.BATCH: "RaiseException",
    ErrorCause.INSTALLATION: "InvalidParameterValue InvalidBinaryRepresentation BadCopyFileFormat"
    " NotNullViolation TooManyColumns CantChangeRuntimeParam DatabaseDropped",
}


def make_error(state: str) -> psycopg.Error:
    error = (errors.lookup(state) if state in KNOWN else psycopg.Error)("said")
    error.sqlstate = state  # type: ignore[misc]
    return error


def test_every_class_of_sqlstate_is_classified_explicitly() -> None:
    assert len(KNOWN) > 250
    labels = [item for classes in CLASSES.values() for item in classes.split()]
    assert sorted(labels) == sorted({state[:2] for state in KNOWN})


@pytest.mark.parametrize(
    "expected, name",
    [
        (outcome, name)
        for outcome, sqlstate_class in CLASSES.items()
        for name in sqlstate_class.split()
    ],
)
def test_unknown_sqlstate_is_treated_like_its_class(expected: ErrorCause, name: str) -> None:
    assert classify_error(make_error(f"{name}ZZZ")) is expected


@pytest.mark.parametrize(
    "expected, name",
    [(outcome, name) for outcome, names in NOTABLE.items() for name in names.split()],
)
def test_some_sqlstates_have_a_different_cause_than_the_rest_of_their_sqlstate_class(
    expected: ErrorCause, name: str
) -> None:
    assert classify_error(getattr(errors, name)("said")) is expected


def test_only_errors_caused_by_a_row_send_it_to_quarantine() -> None:
    """The test lists the SQLSTATE classes of such errors, the codes in these classes with a
    different cause, and the only code of a different class that quarantines rows."""
    at_fault = {state for state in KNOWN if classify_error(make_error(state)) is ErrorCause.BATCH}
    classes = {state for state in KNOWN if state[:2] in ("21", "22", "23", "54")}
    other_codes = {"22023", "22P03", "22P04", "23502", "54011", "54023"}
    # A check_violation without a constraint is a missing partition, see below.
    assert at_fault == (classes - other_codes - {"23514"}) | {"P0001"}


@pytest.mark.parametrize(
    "error, expected",
    [
        (psycopg.OperationalError("server closed the connection"), ErrorCause.OUTAGE),
        (psycopg.InterfaceError("the connection is closed"), ErrorCause.OUTAGE),
        (psycopg.DataError("PostgreSQL text fields cannot contain NUL"), ErrorCause.BATCH),
        (psycopg.ProgrammingError("cannot adapt type"), ErrorCause.INSTALLATION),
        (make_error("ZZ123"), ErrorCause.INSTALLATION),
        # A missing partition is waited for.
        (errors.CheckViolation("no partition of relation found for row"), ErrorCause.OUTAGE),
    ],
    ids=repr,
)
def test_error_has_expected_cause_when_its_sqlstate_is_absent_unknown_or_ambiguous(
    error: psycopg.Error, expected: ErrorCause
) -> None:
    assert classify_error(error) is expected


@pytest.mark.parametrize(
    "text, expected",
    [
        ('duplicate key violates "product_task_aud_20261123_pkey_102589"', errors.UniqueViolation),
        ("«product_task_aud_20261123_pkey_102589»", errors.UniqueViolation),
        ('violates "product_task_aud_20261123_new_pkey1_102059"', errors.UniqueViolation),
        ('no partition of relation "product_task_aud_102008" found', errors.CheckViolation),
        ("server closed the connection unexpectedly\n\tThis", errors.ConnectionFailure),
        (
            'relation "product_task_aud_20261123_102008" violates check constraint "theirs"',
            ShardConstraintError,
        ),
        (
            'null value in "author" of "product_task_aud_20261123_102008" is a violation',
            errors.InternalError_,
        ),
        ("something else in product_task_aud_20261123_102008", errors.InternalError_),
    ],
)
def test_error_of_a_shard_is_classified_like_the_error_of_a_plain_table(
    text: str, expected: type[psycopg.Error]
) -> None:
    result = convert_shard_error(errors.InternalError_(text), "product_task_aud")
    assert type(result) is expected
    assert is_missing_partition(result) is (expected is errors.CheckViolation)


def test_row_that_violates_a_constraint_of_a_shard_counts_as_bad() -> None:
    text = (
        'new row for relation "product_task_aud_20261123_102008" violates check constraint "theirs"'
        '\nDETAIL:  Failing row contains (c, "x").'
    )
    error = convert_shard_error(errors.InternalError_(text), "product_task_aud")
    assert classify_error(error) is ErrorCause.BATCH
    assert isinstance(error, psycopg.IntegrityError)
    assert get_constraint_name(error) == "theirs"
