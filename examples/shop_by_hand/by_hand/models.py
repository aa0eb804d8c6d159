"""A product that counts its own versions."""

from django.db import models


class Product(models.Model):
    sku = models.CharField(max_length=32, unique=True)
    price = models.DecimalField(max_digits=12, decimal_places=2)
    version = models.IntegerField(default=0)

    class Meta:
        app_label = "by_hand"

    def save(self, *args: object, **options: object) -> None:
        self.version += 1
        super().save(*args, **options)  # type: ignore[arg-type]
