"""The clock. The only module that reads the time, so that a test can move it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from history.common.complaints import ExplainedError

# Hosts that follow a time service differ by milliseconds.
TOLERANCE = timedelta(hours=1)


class WrongClockError(ExplainedError, RuntimeError):
    """The clocks of this machine and of the database server differ by more than TOLERANCE."""

    def __init__(self, machine_time: datetime, server_time: datetime) -> None:
        super().__init__(
            f"the clock of this machine says {machine_time:%Y-%m-%d %H:%M} UTC, that of the "
            "database "
            f"server {server_time:%Y-%m-%d %H:%M} UTC. Correct the wrong one"
        )


def now() -> datetime:
    """Return the current moment in UTC."""
    return datetime.now(UTC)


def read_server_time(connection: psycopg.Connection[Any]) -> datetime:
    """Return the time of the database server in UTC; in a transaction, when that began."""
    query = "SELECT (extract(epoch FROM now()) * 1000000)::bigint"  # whatever its DateStyle is
    [(microseconds,)] = connection.execute(query).fetchall()
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=microseconds)


def get_earlier_time(connection: psycopg.Connection[Any]) -> datetime:
    """Return the earlier of the times of this machine and of the database server."""
    return min(now(), read_server_time(connection))


def check_clocks(connection: psycopg.Connection[Any]) -> None:
    """Raise WrongClockError if this machine and the database server do not agree on the time."""
    machine_time, server_time = now(), read_server_time(connection)
    if abs(machine_time - server_time) > TOLERANCE:
        raise WrongClockError(machine_time, server_time)
