"""The inbox: a service processes each Kafka message once in effect, in the order of its key."""

from outbox.inbox.message import Message, Reject, handler

__all__ = ["Message", "Reject", "handler"]
