"""The message of a version, and its way to Kafka."""

import json
from datetime import UTC, datetime
from functools import cache
from typing import Any

from confluent_kafka import Producer
from django.conf import settings

from by_hand.author import author
from by_hand.models import Product

TOPIC = "shop.product"


@cache
def producer() -> Producer:
    return Producer({**settings.KAFKA, "acks": "all", "enable.idempotence": True})


def message(product: Product, created: bool) -> dict[str, Any]:
    return {
        "id": product.sku,
        "version": product.version,
        "type": "CREATE" if created else "UPDATE",
        "updatedAt": datetime.now(UTC).isoformat(),
        "clientId": "shop",
        "author": author.get(),
        "data": {"sku": product.sku, "price": str(product.price)},
    }


def send(message: dict[str, Any]) -> None:
    value = json.dumps(message).encode()
    producer().produce(TOPIC, key=message["id"].encode(), value=value)
    producer().poll(0)
