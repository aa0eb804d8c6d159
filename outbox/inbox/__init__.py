"""The inbox: each Kafka message takes effect exactly once, and messages of one key in order."""

from outbox.inbox.message import Message, Reject, handler

__all__ = ["Message", "Reject", "handler"]
