"""The errors of the outbox.

OutboxError
├── NotInTransaction    record() outside of a transaction
├── WrongChange         the change breaks a rule of the message contract
└── WrongSettings       settings.OUTBOX
"""


class OutboxError(Exception):
    """Nothing was recorded. The message says what to do."""


class NotInTransaction(OutboxError):
    """Raised when no transaction is open: the version and the change could not be committed
    together.
    """


class WrongChange(OutboxError, ValueError):
    """Raised when a change breaks the message contract, so that consumers would refuse its
    message.
    """


class WrongSettings(OutboxError):
    """Raised when settings.OUTBOX or settings.INBOX is wrong or incomplete. The message names the
    key.
    """
