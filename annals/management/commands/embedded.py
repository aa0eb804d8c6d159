"""`manage.py embedded`: shows, starts and stops the embedded servers."""

import os
from argparse import ArgumentParser

from django.core.management.base import BaseCommand

from annals import embedded, env


class Command(BaseCommand):
    help = "Show, start or stop the embedded PostgreSQL and the embedded broker."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "action", choices=["status", "start", "stop"], help="what to do with both servers"
        )

    def handle(self, *, action: str, **_: object) -> None:
        home = env.read(os.environ).home
        servers: dict[str, embedded.Postgres | embedded.Broker] = {
            "postgres": embedded.database_server(home),
            "broker": embedded.broker_server(home),
        }
        if action == "start":
            for server in servers.values():
                server.start()
        for name, server in servers.items():
            if action == "stop":
                stopped = server.stop()
                self.stdout.write(f"{name}: {'stopped' if stopped else 'was not running'}")
            elif server.running():
                place = f"port {server.port()}, pid {server.pid()}, {server.home}"
                self.stdout.write(f"{name}: running, {place}")
            else:
                self.stdout.write(f"{name}: not running, {server.home}")
