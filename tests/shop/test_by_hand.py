"""What a service loses that sends its versions without the outbox: each loss really made."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest
from django.contrib import admin
from django.db import connections, transaction
from django.db.models import F
from django.db.models.signals import post_save
from pytest_django import DjangoDbBlocker

from annals.docs import ROOT
from annals.embedded.broker import Broker
from ingest.source import kafka
from tests.kafka import brokers
from tests.kafka.fixtures import embedded
from tests.outbox import in_place

__all__ = ["embedded"]

HERE = ROOT / "examples" / "shop_by_hand"
sys.path.append(str(HERE))
TOPIC = "shop.product"
KILLED = """
import os, signal, sys
import django
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict
parts = conninfo_to_dict(sys.argv[1])
database = {name.upper(): str(parts[name]) for name in ("host", "port", "user", "password")}
settings.configure(
    INSTALLED_APPS=["by_hand"], KAFKA={"bootstrap.servers": sys.argv[2]},
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": parts["dbname"],
        **database}},
)
django.setup()
from by_hand import after_commit
from by_hand.models import Product
Product(sku="MUG", price="390.00").save()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def database(embedded: Broker, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """The service, with an empty topic; the address of its database."""
    brokers.create(embedded, [TOPIC], partitions=1)
    settings: Any = SimpleNamespace(
        INSTALLED_APPS=["by_hand"], KAFKA=dict(embedded.client()), DATABASES=connections.settings
    )
    with (
        django_db_blocker.unblock(),
        in_place.database("by_hand") as name,
        in_place.service(settings, name, admin.AdminSite()) as url,
    ):
        yield url


@contextmanager
def sending(way: str) -> Iterator[Any]:
    """The service that sends like this; its model."""
    messages = import_module("by_hand.messages")
    module: Any = import_module(f"by_hand.{way}")
    model = import_module("by_hand.models").Product
    post_save.connect(module.saved, sender=model)
    try:
        yield model
    finally:
        post_save.disconnect(module.saved, sender=model)
        messages.producer().flush(10)
        messages.producer.cache_clear()


def sent(broker: Broker) -> list[tuple[int, str]]:
    """Version and price of each message."""
    servers = cast(str, broker.client()["bootstrap.servers"])
    read = kafka.peek(servers, {"fetch.wait.max.ms": "10"}, (TOPIC, 0), 0, 100)
    found = [json.loads(each.value or b"") for each in read]
    return [(each["version"], each["data"]["price"]) for each in found]


def price(database: str) -> list[str]:
    with psycopg.connect(database) as connection:
        return [str(each) for (each,) in connection.execute("SELECT price FROM by_hand_product")]


def test_sent_after_the_commit_a_killed_process_loses_the_version(
    database: str, embedded: Broker
) -> None:
    servers = cast(str, embedded.client()["bootstrap.servers"])
    done = subprocess.run(
        [sys.executable, "-c", KILLED, database, servers],
        env={**os.environ, "PYTHONPATH": str(HERE)},
    )
    assert done.returncode == -signal.SIGKILL
    assert price(database) == ["390.00"]
    assert sent(embedded) == []


def test_sent_before_the_commit_a_rollback_publishes_what_never_was(
    database: str, embedded: Broker
) -> None:
    with sending("before_commit") as model:

        @transaction.atomic
        def fail() -> None:
            model(sku="MUG", price="390.00").save()
            raise TimeoutError("the payment service does not answer")

        with pytest.raises(TimeoutError):
            fail()
    assert price(database) == []
    assert sent(embedded) == [(1, "390.00")]


@pytest.mark.parametrize("way", ["after_commit", "before_commit"])
def test_two_writers_give_the_same_number(database: str, embedded: Broker, way: str) -> None:
    with sending(way) as model:
        model(sku="MUG", price="390.00").save()
        one, other = model.objects.get(), model.objects.get()  # two requests at the same time
        one.price, other.price = "400.00", "410.00"
        one.save()
        other.save()
    assert sent(embedded) == [(1, "390.00"), (2, "400.00"), (2, "410.00")]


@pytest.mark.parametrize("way", ["after_commit", "before_commit"])
def test_a_change_of_many_rows_is_not_sent(database: str, embedded: Broker, way: str) -> None:
    with sending(way) as model:
        model(sku="MUG", price="390.00").save()
        model.objects.update(price=F("price") + 10)
    assert price(database) == ["400.00"]
    assert sent(embedded) == [(1, "390.00")]


def lines(*names: str) -> int:
    """Lines of code of these modules, without docstrings and empty lines."""
    texts = [(HERE / "by_hand" / f"{name}.py").read_text() for name in names]
    bare = [re.sub(r'""".*?"""', "", text, flags=re.DOTALL) for text in texts]
    return sum(bool(line.strip()) for text in bare for line in text.splitlines())
