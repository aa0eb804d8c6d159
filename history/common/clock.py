"""The clock. No other module reads the current time, so that a test can move the clock."""

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from history.common.explained_errors import ExplainedError

# How far two clocks may differ. Hosts that follow a time service differ by milliseconds.
TOLERANCE = timedelta(hours=1)


class WrongClockError(ExplainedError, RuntimeError):
    """Raised if the clocks of this machine and the database server differ by over TOLERANCE."""

    def __init__(self, machine_time: datetime, server_time: datetime) -> None:
        super().__init__(
            f"the clock of this machine says {machine_time:%Y-%m-%d %H:%M} UTC, but the clock of "
            f"the database server says {server_time:%Y-%m-%d %H:%M} UTC. Correct the wrong clock"
        )


def now() -> datetime:
    """Return the current moment in UTC."""
    return datetime.now(UTC)


def read_server_time(connection: psycopg.Connection[Any]) -> datetime:
    """Return the time of the database server in UTC.

    Inside a transaction this is the time at which the transaction began.
    """
    query = "SELECT (extract(epoch FROM now()) * 1000000)::bigint"  # does not depend on DateStyle
    [(microseconds,)] = connection.execute(query).fetchall()
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=microseconds)


def get_earlier_time(connection: psycopg.Connection[Any]) -> datetime:
    """Return the time of this machine or of the database server, whichever is earlier."""
    return min(now(), read_server_time(connection))


def check_clocks(connection: psycopg.Connection[Any]) -> None:
    """Check that the clocks of this machine and the database server agree.

    Raises:
        WrongClockError: The clocks differ by more than TOLERANCE.
    """
    machine_time, server_time = now(), read_server_time(connection)
    if abs(machine_time - server_time) > TOLERANCE:
        raise WrongClockError(machine_time, server_time)
