"""The inbox: a service reacts to each message of Kafka once in effect, in order of its key."""

from outbox.inbox.message import Message, Reject, handler

__all__ = ["Message", "Reject", "handler"]
