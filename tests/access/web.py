"""A web process that is not a demo. People log in to it through real identity providers."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import requests

from annals.embedded import logins
from tests.access.real_provider import ProviderUser, choose_port
from tests.consuming import ProductDatabase, run_command, wait_until

ROOT = Path(__file__).resolve().parents[2]


class ProductionWeb:
    """A gunicorn process that is not a demo. start() takes the identity providers."""

    def __init__(self, database: ProductDatabase, folder: Path, **more: str) -> None:
        self.port = choose_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / "web.log"
        self.output = folder / "web.out"
        self.folder = folder
        self.database = database
        self.more = more

    def start(self, providers: list[dict[str, object]]) -> None:
        file = self.folder / "providers.json"
        file.write_text(json.dumps({"provider": providers}))
        env = {n: v for n, v in os.environ.items() if not n.startswith("ANNALS_")}
        self.env = env | {
            "DATABASE_URL": self.database.build_url(logins.WEB),
            "ANNALS_HOME": str(self.folder / "home"),
            "ANNALS_OIDC_FILE": str(file),
            "ANNALS_ALLOWED_HOSTS": "127.0.0.1",
            "ANNALS_LANGUAGE": "en",
            **self.more,
        }
        with self.log.open("w") as log, self.output.open("w") as output:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "gunicorn",
                    "--config",
                    "python:annals.server",
                    "--bind",
                    f"127.0.0.1:{self.port}",
                    "annals.wsgi",
                ],
                cwd=ROOT,
                env=self.env,
                stdout=output,
                stderr=log,
            )
        wait_until(self._is_alive, self.log.read_text)

    def _is_alive(self) -> bool:
        try:
            return requests.get(f"{self.url}/healthz", timeout=120).status_code == 200
        except (requests.ConnectionError, requests.Timeout):
            return False

    def run_command(self, *arguments: str, **more: str) -> str:
        """Run a command as the owner of the tables, and return what it prints.

        Args:
            more: Environment variables that differ from the environment of the web server.
        """
        owner = {"DATABASE_URL": self.database.build_url(logins.OWNER)}
        result = run_command(self.env | owner | more, *arguments)
        assert result.returncode == 0, result.stderr
        return result.stdout.strip()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(120)

    def list_users(self) -> dict[str, tuple[bool, list[str]]]:
        """Return for each login whether it is a superuser, and its roles."""
        rows = self.database.query(
            "SELECT username, is_superuser, coalesce(array_agg(g.name ORDER BY g.name)"
            " FILTER (WHERE g.name IS NOT NULL), '{}') AS roles FROM auth_user u"
            " LEFT JOIN auth_user_groups m ON m.user_id = u.id"
            " LEFT JOIN auth_group g ON g.id = m.group_id GROUP BY u.id"
        )
        return {row["username"]: (row["is_superuser"], row["roles"]) for row in rows}

    def remove_users(self) -> None:
        """Delete all users, people, sessions and journal entries."""
        self.database.execute(
            "TRUNCATE auth_user, history_person, django_session, access_journal CASCADE"
        )

    def list_entries(self) -> list[dict[str, Any]]:
        """Return the journal entries, oldest first."""
        return self.database.query("SELECT login, action, query FROM access_journal ORDER BY at")

    def read_log(self) -> str:
        return self.log.read_text()


def is_logged_in(person: ProviderUser, web: ProductionWeb) -> bool:
    """Return whether the web server shows the screens to the person without a login page."""
    answer = person.http.get(f"{web.url}/admin/", timeout=120, allow_redirects=False)
    return answer.status_code == 200


def age_sessions(web: ProductionWeb, seconds: int, name: str = "annals_confirmed") -> None:
    """Set the time stored under `name` back by these seconds, in every session that has it."""
    code = (
        "from django.contrib.sessions.models import Session\n"
        "from django.contrib.sessions.backends.db import SessionStore\n"
        "for session in Session.objects.all():\n"
        "    store = SessionStore(session.session_key)\n"
        f"    if '{name}' in store:\n"
        f"        store['{name}'] -= {seconds}\n"
        "        store.save()\n"
    )
    web.run_command("shell", "-c", code)
