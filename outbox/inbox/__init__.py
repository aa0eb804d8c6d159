"""The inbox: processes each Kafka message once in effect, and messages of one key in order."""

from outbox.inbox.message import Message, Reject, handler

__all__ = ["Message", "Reject", "handler"]
