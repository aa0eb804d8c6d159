"""`annals embedded`: shows, starts and stops the embedded servers."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand

if TYPE_CHECKING:
    from annals.embedded import EmbeddedBroker, EmbeddedPostgres


class Command(BaseCommand):
    help = "Show, start or stop the embedded PostgreSQL and the embedded broker."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "action", choices=["status", "start", "stop"], help="what to do with both servers"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        from annals import embedded
        from annals.configuration import env

        home = env.read_settings(os.environ).home
        servers: dict[str, EmbeddedPostgres | EmbeddedBroker] = {
            "postgres": embedded.get_database_server(home),
            "broker": embedded.get_broker_server(home),
        }
        for name, server in servers.items():
            if options["action"] == "start":
                server.start()
            if options["action"] == "stop":
                status = "stopped" if server.stop() else "was not running"
            elif server.is_running():
                status = (
                    f"running, port {server.get_port()}, pid {server.find_pid()}, {server.home}"
                )
            else:
                status = f"not running, {server.home}"
            self.stdout.write(f"{name}: {status}")
