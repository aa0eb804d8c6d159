"""`manage.py reprice PERCENT`: changes the prices of all products that are on sale."""

from argparse import ArgumentParser
from decimal import Decimal
from typing import Any

from django.core.management import BaseCommand

from orders.models import Product, reprice


class Command(BaseCommand):
    help = "Change the prices of all products that are on sale"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("percent", type=Decimal, help="such as 5 or -2.5")

    def handle(self, *_: Any, **options: Any) -> None:
        count = reprice(Product.objects.filter(on_sale=True), options["percent"])
        self.stdout.write(f"{count} prices were changed.")
