"""Finds the cause of a PostgreSQL error. The consumer's reaction depends on this cause.

docs/decisions/0020 has the causes and the reactions. Begin with `classify_error`.
"""

import re
from enum import Enum

import psycopg
from psycopg import errors


class ErrorCause(Enum):
    """Why a statement failed. Each cause needs a different reaction."""

    OUTAGE = "outage"
    """The database is not available or busy. The same statement works later."""

    BATCH = "batch"
    """The rows are wrong. Repetition does not help: the wrong rows must go to quarantine."""

    INSTALLATION = "installation"
    """Schema, rights, configuration or the program is wrong. Somebody must correct it."""


_OUTAGE, _BATCH, _INSTALLATION = ErrorCause.OUTAGE, ErrorCause.BATCH, ErrorCause.INSTALLATION

# Causes by the first two characters of a SQLSTATE. All other classes count as INSTALLATION, because
# with this cause no message is lost or quarantined.
CLASSES = {
    "08": _OUTAGE,  # connection; 08P01 is also how PgBouncer reports its limits
    "21": _BATCH,  # cardinality: one upsert meets the same key twice
    "22": _BATCH,  # data: text, numbers and times that a column cannot hold
    "23": _BATCH,  # integrity constraints
    "40": _OUTAGE,  # rollback: serialization, deadlock
    "53": _OUTAGE,  # resources: disk, memory, connections
    "54": _BATCH,  # program limits: a value, row or nesting that is too large
    "55": _OUTAGE,  # object state: locked, in use
    "57": _OUTAGE,  # operator intervention: shutdown, startup, cancel
    "58": _OUTAGE,  # system: input and output
    "72": _OUTAGE,  # snapshot too old
}

# Causes of single SQLSTATEs that differ from the cause of their class.
CODES = {
    "22023": _INSTALLATION,  # invalid_parameter_value: of a setting or a function
    "22P03": _INSTALLATION,  # invalid_binary_representation: another column type than expected
    "22P04": _INSTALLATION,  # bad_copy_file_format: the program wrote a bad COPY
    "23502": _INSTALLATION,  # not_null_violation: a column that the program does not know
    "25006": _OUTAGE,  # read_only_sql_transaction: a standby, until the failover is complete
    "25P02": _OUTAGE,  # in_failed_sql_transaction: does not occur on a new connection
    "25P03": _OUTAGE,  # idle_in_transaction_session_timeout
    "25P04": _OUTAGE,  # transaction_timeout
    "54011": _INSTALLATION,  # too_many_columns
    "54023": _INSTALLATION,  # too_many_arguments
    "55P02": _INSTALLATION,  # cant_change_runtime_param
    "57P04": _INSTALLATION,  # database_dropped
    "F0001": _OUTAGE,  # lock_file_exists: the server starts
    "P0001": _BATCH,  # raise_exception: a trigger that refuses a row
}


def classify_error(error: psycopg.Error) -> ErrorCause:
    """Return the cause of an error of PostgreSQL or of the client library."""
    if is_missing_partition(error):
        return _OUTAGE
    state = error.sqlstate  # None for an error of the client library
    if state is not None:
        return CODES.get(state) or CLASSES.get(state[:2], _INSTALLATION)
    if isinstance(error, psycopg.DataError):
        return _BATCH
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return _OUTAGE
    return _INSTALLATION


# Classes of errors that stay until somebody corrects rights, tables or the login.
_PERMANENT = frozenset({"28", "3D", "3F", "42"})


def is_permanent(error: psycopg.Error) -> bool:
    """Return whether an error stays until somebody corrects rights, tables or the login."""
    state = error.sqlstate or ""
    return state[:2] in _PERMANENT and classify_error(error) is ErrorCause.INSTALLATION


def is_missing_partition(error: psycopg.Error) -> bool:
    """Return whether the error says that the table has no partition for a row.

    PostgreSQL reports this as a check_violation without the name of a constraint.
    """
    return isinstance(error, errors.CheckViolation) and error.diag.constraint_name is None


class ShardConstraintError(errors.IntegrityConstraintViolation):
    """Raised for a row that violates a constraint which an operator added to the shards."""

    def __init__(self, text: str, constraint: str) -> None:
        super().__init__(text)
        self.constraint = constraint


def get_constraint_name(error: psycopg.IntegrityError) -> str | None:
    """Return the name of the constraint that a row violates, on a single server or on a shard."""
    if isinstance(error, ShardConstraintError):
        return error.constraint
    return error.diag.constraint_name


# The name of a primary key of a shard. PostgreSQL puts a number after _pkey if the name is taken.
_SHARD_KEY = re.compile(r"_pkey\d*_\d+\b")
# The name of a day's shard and the name of the violated constraint, in the quotes of any language.
_SHARD_CONSTRAINT = r'["«]{table}_\d{{8}}\w*_\d+["»].*["«](.+)["»]'
# libpq's message when a worker node dies while it receives rows.
_WORKER_DIED = "server closed the connection unexpectedly"


def convert_shard_error(error: errors.InternalError_, table: str) -> psycopg.Error:
    """Return the real error of a COPY that a shard of a Citus cluster refused.

    Citus passes on the message of the shard, but not its SQLSTATE. So the error is recognised by
    the names of relations in the message, which are the same in every language.

    Args:
        table: The name of the distributed table.
    """
    text = str(error)
    if _WORKER_DIED in text:
        return errors.ConnectionFailure(text)
    if _SHARD_KEY.search(text):
        return errors.UniqueViolation(text)
    if re.search(rf"\b{table}_\d+\b", text):
        return errors.CheckViolation(text)  # the shard has no partition for a row
    if constraint := re.search(_SHARD_CONSTRAINT.format(table=table), text):
        return ShardConstraintError(text, constraint[1])
    return error
