"""The outbox records versions in the transaction of the change and sends them to Kafka."""

from outbox.errors import OutboxError
from outbox.recording.author import acting_as
from outbox.recording.writer import Change, record, record_many

__version__ = "0.2.0.dev0"

__all__ = ["Change", "OutboxError", "acting_as", "record", "record_many"]
