"""The errors of the outbox.

OutboxError
├── NotInTransaction    record() outside of a transaction
├── WrongChange         the change breaks a rule of the message contract
└── WrongSettings       settings.OUTBOX
"""


class OutboxError(Exception):
    """Nothing was recorded. The message says what to do."""


class NotInTransaction(OutboxError):
    """A version would be recorded without the change that it belongs to, or the other way round."""


class WrongChange(OutboxError, ValueError):
    """The consumers of the topic would refuse the message."""


class WrongSettings(OutboxError):
    """settings.OUTBOX does not say what is needed. The message names the key."""
