"""The recorded models of the test service. Annals knows the kinds of their documents."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from django.db import models

from outbox.recorded import Kind, PartOf, Recorded


def make_order_snapshot(order: Order) -> dict[str, Any]:
    return {"number": order.number, "rate": order.rate, "note": order.note}


class Order(Recorded):
    recorded_as = Kind("product-instance", snapshot=make_order_snapshot, id="number")

    number = models.CharField(max_length=32, unique=True)
    rate = models.DecimalField(max_digits=20, decimal_places=2)
    note = models.TextField(default="")
    opened = models.IntegerField(default=0)

    class Meta:
        app_label = "shop"


class ItemSerializer:
    """A serializer as in Django REST Framework: it is made for an item, and has `data`."""

    def __init__(self, item: Item) -> None:
        self.data = {"pid": str(item.pk), "name": item.name}


class Item(Recorded):
    recorded_as = Kind("product-task", snapshot=ItemSerializer, parent="order_number")

    order = models.ForeignKey(Order, models.CASCADE, related_name="items")
    name = models.CharField(max_length=100)

    class Meta:
        app_label = "shop"

    @property
    def order_number(self) -> str:
        return self.order.number


class Flag(Recorded):
    """A model without a snapshot function, so all its columns are recorded."""

    recorded_as = Kind("realty-info", parent="name")

    name = models.CharField(max_length=32)
    on = models.BooleanField(default=False)

    class Meta:
        app_label = "shop"


def make_basket_snapshot(basket: Basket) -> dict[str, Any]:
    lines = basket.lines.order_by("pk")
    return {"lines": [{"name": line.name, "count": line.count} for line in lines]}


class Basket(Recorded):
    """A document whose lines are rows of another table."""

    recorded_as = Kind("product-instance", snapshot=make_basket_snapshot, id="name")

    name = models.CharField(max_length=32, unique=True)

    class Meta:
        app_label = "shop"


class Line(Recorded):
    recorded_as = PartOf("basket")

    basket = models.ForeignKey(Basket, models.CASCADE, related_name="lines")
    name = models.CharField(max_length=32)
    count = models.IntegerField(default=1)

    class Meta:
        app_label = "shop"


class Note(Recorded):
    """A note with a UUID as its key, and a file.

    If its order is deleted, Django sets the reference to null without calling save().
    """

    recorded_as = Kind("product-task")

    id = models.UUIDField(primary_key=True, default=uuid4)
    order = models.ForeignKey(Order, models.SET_NULL, null=True, related_name="notes")
    scan = models.FileField()

    class Meta:
        app_label = "shop"


class Effect(models.Model):
    """A row that a handler creates for each message that it processes."""

    handler = models.CharField(max_length=100)
    key = models.CharField(max_length=100)
    n = models.IntegerField()

    class Meta:
        app_label = "shop"
