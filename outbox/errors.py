"""The errors of the outbox.

OutboxError
├── NotInTransaction    record() outside of a transaction
├── WrongChange         the change breaks a rule of the message contract
└── WrongSettings       settings.OUTBOX
"""

from __future__ import annotations


class OutboxError(Exception):
    """Nothing was recorded. The message says what to do."""


class NotInTransaction(OutboxError):
    """A version would be recorded without the change that it belongs to, or the other way round."""


class WrongChange(OutboxError, ValueError):
    """The consumers of the topic would refuse the message."""


class WrongSettings(OutboxError):
    """settings.OUTBOX does not say what is needed. The message names the key."""


def counted(count: int, one: str, several: str = "") -> str:
    """`1 document`, `1,234 documents`. several: the words for another number than 1, if not
    one + s."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"
