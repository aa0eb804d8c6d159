"""Sends each version after the commit. A process that ends in between loses it."""

from functools import partial
from typing import Any

from django.db import transaction
from django.db.models.signals import post_save
from django.dispatch import receiver

from by_hand.messages import message, send
from by_hand.models import Product


@receiver(post_save, sender=Product)
def saved(instance: Product, created: bool, **_: Any) -> None:
    transaction.on_commit(partial(send, message(instance, created)))
