"""`annals embedded`: shows, starts and stops the embedded servers."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand

if TYPE_CHECKING:
    from annals.embedded import Broker, Postgres


class Command(BaseCommand):
    help = "Show, start or stop the embedded PostgreSQL and the embedded broker."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "action", choices=["status", "start", "stop"], help="what to do with both servers"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        from annals import embedded, env

        home = env.read(os.environ).home
        servers: dict[str, Postgres | Broker] = {
            "postgres": embedded.database_server(home),
            "broker": embedded.broker_server(home),
        }
        for name, server in servers.items():
            if options["action"] == "start":
                server.start()
            if options["action"] == "stop":
                said = "stopped" if server.stop() else "was not running"
            elif server.running():
                said = f"running, port {server.port()}, pid {server.pid()}, {server.home}"
            else:
                said = f"not running, {server.home}"
            self.stdout.write(f"{name}: {said}")
