"""The example shop next to Annals: its own database, its relay, and its web."""

import os
import re
import secrets
import time
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import sql

from annals.demo.client import Client, ClientError
from annals.demo.supervisor import MANAGE, Supervisor
from annals.embedded import logins
from annals.embedded.postgres import Postgres

ROOT: Final = Path(__file__).resolve().parents[2]
SHOP: Final = ROOT / "examples" / "shop"
KINDS: Final = SHOP / "annals-kinds.toml"
PEOPLE: Final = SHOP / "annals-people.csv"
SHOP_MANAGE: Final = str(SHOP / "manage.py")
LOGINS: Final = {"anna": "Соколова Анна", "boris": "Кузнецов Борис"}
# The first product of its demo data.
SKU: Final = "KETTLE-17"
PRICE: Final = "2590.00"
LOGIN = DATABASE = "shop"
PATIENCE_S = 30
POLL_S = 0.01


class ShopError(AssertionError):
    """A change in the shop is not in Annals as it should be; the text says what is wrong."""


def prepare(demo: Supervisor) -> dict[str, str]:
    """Create its database and its demo data, import the names of its people into Annals, and start
    its relay. Returns the environment of its processes."""
    _create_database(demo.postgres)
    environment = {
        "DATABASE_URL": demo.postgres.url(DATABASE, LOGIN),
        "DJANGO_SETTINGS_MODULE": "shop.settings",
        "KAFKA_BOOTSTRAP_SERVERS": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(SHOP)]),
        "SHOP_SECRET_KEY": secrets.token_urlsafe(),
    }
    for words in (("migrate", "--verbosity", "0"), ("demo_data",)):
        demo.run(f"shop-{words[0]}", SHOP_MANAGE, *words, environment=environment)
    demo.run("people", MANAGE, "people", "import", str(PEOPLE), login=logins.WEB)
    demo.start("shop-relay", SHOP_MANAGE, "outbox", "relay", environment=environment)
    return environment


def serve(demo: Supervisor, port: int, environment: dict[str, str]) -> None:
    """Start its web server; returns when it answers."""
    options = ("--threads=8", "--no-control-socket", "shop.wsgi")
    demo.gunicorn("shop", port, "/admin/login/", *options, environment=environment)


def change(demo: Supervisor, shop: str, reader: Client) -> str:
    """Change the price of a product in the admin of the shop as a person, and wait until Annals has
    it. shop: its address. Returns what Annals shows. Raises ShopError."""
    login = next(iter(LOGINS))
    person = Client(shop, login, login, csrf_cookie="shop_csrf")
    page = _page_of(person)
    _versions(demo, reader, 1)
    form = {**person.form(page), "price": PRICE, "on_sale": "on"}
    began = time.monotonic()
    answer = person.submit(page, form)
    if "errornote" in answer:
        raise ShopError(f"the shop refuses the price {PRICE}")
    newest = _versions(demo, reader, 2)[0]
    took = (time.monotonic() - began) * 1000
    shown = [each for each in newest["changes"] if each["path"] == "/price"]
    expected = (login, LOGINS[login], [PRICE])
    found = (newest["author"], newest["authorName"], [each["new"] for each in shown])
    if found != expected:
        raise ShopError(f"Annals shows {found}, not {expected}")
    return (
        f"{newest['authorName']} changed the price of {SKU} from {shown[0]['old']} to {PRICE}: in "
        f"the API of Annals {took:.0f} ms after the form was sent to the shop"
    )


def _page_of(person: Client) -> str:
    """The page of the product in the admin."""
    listed = person.screen(f"/admin/orders/product/?q={SKU}")
    found = re.search(r"/admin/orders/product/\d+/change/", listed)
    if found is None:
        raise ShopError(f"the shop does not list {SKU}")
    return found[0]


def _versions(demo: Supervisor, reader: Client, least: int) -> list[Any]:
    """The versions of the product in Annals, newest first, once there are so many."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        demo.checkpoint()
        try:
            found: list[Any] = reader.get(f"history/product/{SKU}")["history"]
        except ClientError:  # 404: none yet
            found = []
        if len(found) >= least:
            return found
        if time.monotonic() > deadline:
            raise ShopError(
                f"after {PATIENCE_S} s Annals has {len(found)} versions of {SKU}, not {least}"
            )
        time.sleep(POLL_S)


def _create_database(postgres: Postgres) -> None:
    """Create it with a login of its own, once."""
    password = postgres.password_file(LOGIN).read_text()
    with psycopg.connect(postgres.url("postgres"), autocommit=True) as connection:
        known = "SELECT EXISTS (SELECT FROM pg_database WHERE datname = %s)"
        if connection.execute(known, [DATABASE]).fetchone() == (True,):
            return
        login = sql.Identifier(LOGIN)
        connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(login))
        role = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(login, sql.Literal(password))
        connection.execute(role)
        connection.execute(
            sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(DATABASE), login)
        )
