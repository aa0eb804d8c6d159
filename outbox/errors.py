"""The errors of the outbox.

OutboxError
├── NotInTransaction    record() is called outside of a transaction
├── WrongChange         a change breaks a rule of the message contract
└── WrongSettingsError  settings.OUTBOX or settings.INBOX is wrong
"""


class OutboxError(Exception):
    """Raised if a version was not recorded. The message says what to do."""


class NotInTransaction(OutboxError):
    """Raised if no transaction is open: the version and the change must commit together."""


class WrongChange(OutboxError, ValueError):
    """Raised if a change breaks the message contract: consumers would refuse its message."""


class WrongSettingsError(OutboxError):
    """Raised if settings.OUTBOX or settings.INBOX is wrong or incomplete.

    The message names the key.
    """
