"""The admin pages on which the staff changes products and orders."""

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from orders.models import Item, Order, Product, reprice
from outbox.recorded import OneVersion

if TYPE_CHECKING:
    Items = admin.TabularInline[Any, Any]
    ModelAdmin = admin.ModelAdmin[Any]
else:  # the classes have no parameters at run time
    Items = admin.TabularInline
    ModelAdmin = admin.ModelAdmin


@admin.register(Product)
class ProductAdmin(ModelAdmin):
    list_display = ("sku", "name", "price", "on_sale")
    list_display_links = ("sku", "name")
    search_fields = ("sku", "name")
    actions = ("raise_prices", "lower_prices")

    @admin.action(description=_("Raise the prices by 5%%"), permissions=["change"])
    def raise_prices(self, request: HttpRequest, products: QuerySet[Product]) -> None:
        self._reprice(request, products, Decimal(5))

    @admin.action(description=_("Lower the prices by 5%%"), permissions=["change"])
    def lower_prices(self, request: HttpRequest, products: QuerySet[Product]) -> None:
        self._reprice(request, products, Decimal(-5))

    def _reprice(self, request: HttpRequest, products: QuerySet[Product], percent: Decimal) -> None:
        count = reprice(products, percent)
        text = ngettext("%d price was changed.", "%d prices were changed.", count)
        self.message_user(request, text % count)


class ItemInline(Items):
    model = Item
    extra = 0


@admin.register(Order)
class OrderAdmin(OneVersion, ModelAdmin):
    list_display = ("number", "customer", "city", "status", "created_at")
    list_filter = ("status",)
    search_fields = ("number", "customer")
    inlines = (ItemInline,)
