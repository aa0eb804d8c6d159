"""Sends each version before the commit. A rollback takes back the change, but not the message."""

from typing import Any

from django.db.models.signals import post_save
from django.dispatch import receiver

from by_hand.messages import message, producer, send
from by_hand.models import Product


@receiver(post_save, sender=Product)
def saved(instance: Product, created: bool, **_: Any) -> None:
    send(message(instance, created))
    if producer().flush(10):
        raise RuntimeError("Kafka has not confirmed the version")
