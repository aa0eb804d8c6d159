"""The URLs of the test service."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib import admin
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import include, path

from tests.outbox.shop.models import Order


def make_order(request: HttpRequest, number: str) -> HttpResponse:
    Order.objects.create(number=number, rate=1)
    return HttpResponse(status=201)


async def make_order_later(request: HttpRequest, number: str) -> HttpResponse:
    make_async: Any = sync_to_async(make_order)
    response: HttpResponse = await make_async(request, number)
    return response


def make_orders(request: HttpRequest, number: str) -> StreamingHttpResponse:
    def make() -> Iterator[str]:
        try:
            for place in range(2):
                Order.objects.create(number=f"{number}-{place}", rate=1)
                yield f"{place}\n"
        finally:
            Order.objects.create(number=f"{number}-end", rate=1)

    return StreamingHttpResponse(make())


def make_orders_later(request: HttpRequest, number: str) -> StreamingHttpResponse:
    async def make() -> AsyncIterator[str]:
        for place in range(2):
            await Order.objects.acreate(number=f"{number}-{place}", rate=1)
            await asyncio.sleep(0)
            yield f"{place}\n"

    return StreamingHttpResponse(make())


urlpatterns = [
    path("admin/", admin.site.urls),
    path("outbox/", include("outbox.urls")),
    path("orders/<number>", make_order),
    path("later/<number>", make_order_later),
    path("streamed/<number>", make_orders),
    path("streamed-later/<number>", make_orders_later),
]
