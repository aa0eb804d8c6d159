"""What `annals embedded` does."""

import os
from json import dumps

from django.core.management.base import BaseCommand

from annals import embedded, env


def run(command: BaseCommand, *, action: str, json: bool, **_: object) -> None:
    """Start or stop both servers, or neither; print what runs. action: status, start or stop."""
    home = env.read(os.environ).home
    servers: dict[str, embedded.Postgres | embedded.Broker] = {
        "postgres": embedded.database_server(home),
        "broker": embedded.broker_server(home),
    }
    if action == "start":
        for server in servers.values():
            server.start()
    if json:
        if action == "stop":
            for server in servers.values():
                server.stop()
        found = [_object(name, server) for name, server in servers.items()]
        command.stdout.write(dumps(found))
        return
    for name, server in servers.items():
        if action == "stop":
            stopped = server.stop()
            command.stdout.write(f"{name}: {'stopped' if stopped else 'was not running'}")
        elif server.running():
            place = f"port {server.port()}, pid {server.pid()}, {server.home}"
            command.stdout.write(f"{name}: running, {place}")
        else:
            command.stdout.write(f"{name}: not running, {server.home}")


def _object(name: str, server: embedded.Postgres | embedded.Broker) -> dict[str, object]:
    running = server.running()
    return {
        "server": name,
        "running": running,
        "port": server.port() if running else None,
        "pid": server.pid() if running else None,
        "home": str(server.home),
    }
