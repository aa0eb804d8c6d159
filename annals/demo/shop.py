"""The example shop next to Annals: its own database, its relay, and its web."""

import os
import secrets
from pathlib import Path
from typing import Final

import psycopg
from psycopg import sql

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
LOGIN = DATABASE = "shop"


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
