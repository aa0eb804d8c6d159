"""What time it is. The only place that asks, so that a test can move the clock."""

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from history.failure.complaints import Complaint

# Hosts that follow a time service differ by milliseconds.
TOLERANCE = timedelta(hours=1)


class WrongClockError(Complaint, RuntimeError):
    """The clocks of this machine and of the database server differ by more than TOLERANCE."""

    def __init__(self, ours: datetime, theirs: datetime) -> None:
        super().__init__(
            f"the clock of this machine says {ours:%Y-%m-%d %H:%M} UTC, that of the database "
            f"server {theirs:%Y-%m-%d %H:%M} UTC. Correct the wrong one"
        )


def now() -> datetime:
    """This moment, in UTC."""
    return datetime.now(UTC)


def of_server(connection: psycopg.Connection[Any]) -> datetime:
    """This moment by the clock of the database server, in UTC; in a transaction, its beginning."""
    query = "SELECT (extract(epoch FROM now()) * 1000000)::bigint"  # whatever its DateStyle is
    [(microseconds,)] = connection.execute(query).fetchall()
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=microseconds)


def earlier(connection: psycopg.Connection[Any]) -> datetime:
    """The earlier of this machine's and the database server's clocks."""
    return min(now(), of_server(connection))


def check(connection: psycopg.Connection[Any]) -> None:
    """Raise WrongClockError if this machine and the database server do not agree on the time."""
    ours, theirs = now(), of_server(connection)
    if abs(ours - theirs) > TOLERANCE:
        raise WrongClockError(ours, theirs)
