"""`manage.py demo_data`: creates a few products, orders and logins, to try the shop out."""

from typing import Any

from django.contrib.auth.models import User
from django.core.management import BaseCommand

from orders.models import Item, Order, Product
from outbox import acting_as
from outbox.recorded import as_one

PEOPLE = (("anna", "Анна", "Соколова"), ("boris", "Борис", "Кузнецов"))
PRODUCTS = (
    ("KETTLE-17", "Чайник электрический 1,7 л", "2490.00"),
    ("MUG-350", "Кружка керамическая 350 мл", "390.00"),
    ("TEA-ASSAM", "Чай чёрный «Ассам» 250 г", "540.00"),
    ("COFFEE-1", "Кофе в зёрнах 1 кг", "1890.00"),
    ("GRINDER-2", "Кофемолка ручная", "3150.00"),
    ("FILTER-100", "Фильтры бумажные, 100 шт.", "275.00"),
)
ORDERS = (
    ("2026-1041", "Орлова Мария", "Казань", {"KETTLE-17": 1, "MUG-350": 4}),
    ("2026-1042", "Ким Виктор", "Самара", {"COFFEE-1": 2, "GRINDER-2": 1, "FILTER-100": 3}),
    ("2026-1043", "Белов Олег", "Тверь", {"TEA-ASSAM": 6}),
)


class Command(BaseCommand):
    help = (
        "Create a few products and orders, and the logins anna and boris. Each password is equal "
        "to its login"
    )

    def handle(self, *_: Any, **__: Any) -> None:
        if Product.objects.exists():
            self.stdout.write("The shop already has products, so nothing was created.")
            return
        for login, first, last in PEOPLE:
            User.objects.create_superuser(login, None, login, first_name=first, last_name=last)
        Product.objects.bulk_create(
            Product(sku=sku, name=name, price=price) for sku, name, price in PRODUCTS
        )
        products = {product.sku: product for product in Product.objects.all()}
        for number, customer, city, items in ORDERS:
            with acting_as("boris"), as_one():
                order = Order.objects.create(number=number, customer=customer, city=city)
                for sku, quantity in items.items():
                    product = products[sku]
                    Item.objects.create(
                        order=order, product=product, quantity=quantity, price=product.price
                    )
        with acting_as("anna"):
            Item.objects.filter(order__number="2026-1042", product__sku="COFFEE-1").update(
                quantity=3
            )
            Order.objects.filter(number="2026-1042").update(status=Order.Status.PAID)
        self.stdout.write(f"Created {len(PRODUCTS)} products and {len(ORDERS)} orders.")
