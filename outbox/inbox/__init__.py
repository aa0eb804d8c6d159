"""The inbox: a service processes each Kafka message once in effect, each key's in order."""

from outbox.inbox.message import Message, Reject, handler

__all__ = ["Message", "Reject", "handler"]
