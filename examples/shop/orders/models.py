"""Models of products and orders. Each change of a product or order is a version in Annals."""

from decimal import Decimal
from typing import Any

from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import F
from django.db.models.functions import Round
from django.utils.translation import gettext_lazy as _

from outbox.recorded import Kind, PartOf, Recorded

_not_negative = [MinValueValidator(0)]


class Product(Recorded):
    sku = models.CharField(_("SKU"), max_length=32, unique=True)
    name = models.CharField(_("name"), max_length=100)
    price = models.DecimalField(
        _("price"), max_digits=12, decimal_places=2, validators=_not_negative
    )
    on_sale = models.BooleanField(_("on sale"), default=True)

    class Meta:
        ordering = ("sku",)
        verbose_name = _("product")
        verbose_name_plural = _("products")

    def __str__(self) -> str:
        return self.name

    def document(self) -> dict[str, Any]:
        return {"sku": self.sku, "name": self.name, "price": self.price, "onSale": self.on_sale}

    recorded_as = Kind("product", snapshot=document, id="sku")


class Order(Recorded):
    class Status(models.TextChoices):
        NEW = "new", _("new")
        PAID = "paid", _("paid")
        SHIPPED = "shipped", _("shipped")
        CANCELLED = "cancelled", _("cancelled")

    number = models.CharField(_("number"), max_length=32, unique=True)
    customer = models.CharField(_("customer"), max_length=100)
    city = models.CharField(_("city"), max_length=100)
    status = models.CharField(_("status"), max_length=10, choices=Status, default=Status.NEW)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)

    class Meta:
        ordering = ("-number",)
        verbose_name = _("order")
        verbose_name_plural = _("orders")

    def __str__(self) -> str:
        return self.number

    def document(self) -> dict[str, Any]:
        items = list(self.items.select_related("product").order_by("pk"))
        return {
            "number": self.number,
            "customer": self.customer,
            "city": self.city,
            "status": self.status,
            "createdAt": self.created_at,
            "items": [item.document() for item in items],
            "total": sum((item.price * item.quantity for item in items), Decimal(0)),
        }

    recorded_as = Kind("order", snapshot=document, id="number")


class Item(Recorded):
    order = models.ForeignKey(Order, models.CASCADE, related_name="items")
    product = models.ForeignKey(Product, models.PROTECT, verbose_name=_("product"))
    quantity = models.PositiveIntegerField(
        _("quantity"), default=1, validators=[MinValueValidator(1)]
    )
    price = models.DecimalField(
        _("price"), max_digits=12, decimal_places=2, validators=_not_negative
    )

    class Meta:
        verbose_name = _("item")
        verbose_name_plural = _("items")
        constraints = [models.UniqueConstraint("order", "product", name="one_item_for_a_product")]

    def __str__(self) -> str:
        return f"{self.product} × {self.quantity}"

    def document(self) -> dict[str, Any]:
        return {
            "sku": self.product.sku,
            "name": self.product.name,
            "quantity": self.quantity,
            "price": self.price,
        }

    recorded_as = PartOf("order")


def reprice(products: models.QuerySet[Product], percent: Decimal) -> int:
    """Change the prices of products by `percent`, and return how many products were changed."""
    return products.update(price=Round(F("price") * (1 + percent / 100), 2))
