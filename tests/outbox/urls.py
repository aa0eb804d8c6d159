"""The addresses of the service."""

from typing import Any

from asgiref.sync import sync_to_async
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import include, path

from tests.outbox.shop.models import Order


def make_order(request: HttpRequest, number: str) -> HttpResponse:
    Order.objects.create(number=number, rate=1)
    return HttpResponse(status=201)


async def make_order_later(request: HttpRequest, number: str) -> HttpResponse:
    make: Any = sync_to_async(make_order)
    answer: HttpResponse = await make(request, number)
    return answer


urlpatterns = [
    path("admin/", admin.site.urls),
    path("outbox/", include("outbox.urls")),
    path("orders/<number>", make_order),
    path("later/<number>", make_order_later),
]
