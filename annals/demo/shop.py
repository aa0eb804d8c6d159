"""Runs the example shop next to Annals, with its own database, relay and web."""

import os
import secrets
from pathlib import Path
from typing import Final

import psycopg
from psycopg import sql

from annals.demo.supervisor import ANNALS_COMMAND, DemoSupervisor
from annals.embedded import logins
from annals.embedded.postgres import EmbeddedPostgres

ROOT: Final = Path(__file__).resolve().parents[2]
SHOP: Final = ROOT / "examples" / "shop"
KINDS: Final = SHOP / "annals-kinds.toml"
PEOPLE: Final = SHOP / "annals-people.csv"
SHOP_MANAGE: Final = str(SHOP / "manage.py")
LOGINS: Final = {"anna": "Соколова Анна", "boris": "Кузнецов Борис"}
# The first product in the demo data of the shop.
SKU: Final = "KETTLE-17"
LOGIN = DATABASE = "shop"


def prepare_shop(demo: DemoSupervisor) -> dict[str, str]:
    """Create the database and demo data of the shop, and start the relay of the shop.

    Also import the names of the shop's authors and services into Annals.

    Returns:
        The environment of the processes of the shop.
    """
    _create_database(demo.postgres)
    environment = {
        "DATABASE_URL": demo.postgres.build_url(DATABASE, LOGIN),
        "DJANGO_SETTINGS_MODULE": "shop.settings",
        "KAFKA_BOOTSTRAP_SERVERS": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(SHOP)]),
        "SHOP_SECRET_KEY": secrets.token_urlsafe(),
    }
    for arguments in (("migrate", "--verbosity", "0"), ("demo_data",)):
        demo.run_process(f"shop-{arguments[0]}", SHOP_MANAGE, *arguments, environment=environment)
    demo.run_process("people", ANNALS_COMMAND, "people", "import", str(PEOPLE), login=logins.WEB)
    demo.start_process("shop-relay", SHOP_MANAGE, "outbox", "relay", environment=environment)
    return environment


def serve_shop(demo: DemoSupervisor, port: int, environment: dict[str, str]) -> None:
    """Start the web server of the shop, and return when it answers."""
    options = ("--threads=8", "--no-control-socket", "shop.wsgi")
    demo.start_gunicorn("shop", port, "/admin/login/", *options, environment=environment)


def _create_database(postgres: EmbeddedPostgres) -> None:
    """Create the database of the shop and the login role that owns it, unless it exists."""
    password = postgres.get_password_file(LOGIN).read_text()
    with psycopg.connect(postgres.build_url("postgres"), autocommit=True) as connection:
        statement = "SELECT EXISTS (SELECT FROM pg_database WHERE datname = %s)"
        if connection.execute(statement, [DATABASE]).fetchone() == (True,):
            return
        login = sql.Identifier(LOGIN)
        connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(login))
        role = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(login, sql.Literal(password))
        connection.execute(role)
        connection.execute(
            sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(DATABASE), login)
        )
