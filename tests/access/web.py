"""A production web process, outside the demo, for people of real identity providers."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import requests

from annals.embedded import logins
from tests.access.real_provider import Person, free_port
from tests.consuming import Database, command, until

ROOT = Path(__file__).resolve().parents[2]


class Web:
    """gunicorn outside the demo, with both providers."""

    def __init__(self, database: Database, folder: Path, **more: str) -> None:
        self.port = free_port()
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
            "DATABASE_URL": self.database.url_of(logins.WEB),
            "ANNALS_HOME": str(self.folder / "home"),
            "ANNALS_OIDC_FILE": str(file),
            "ANNALS_ALLOWED_HOSTS": "127.0.0.1",
            **self.more,
        }
        with self.log.open("w") as log, self.output.open("w") as output:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "gunicorn", "--config", "python:annals.server"),
                    *("--bind", f"127.0.0.1:{self.port}", "annals.wsgi"),
                ],
                cwd=ROOT,
                env=self.env,
                stdout=output,
                stderr=log,
            )
        until(self._alive, self.log.read_text)

    def _alive(self) -> bool:
        try:
            return requests.get(f"{self.url}/healthz", timeout=5).status_code == 200
        except (requests.ConnectionError, requests.Timeout):
            return False

    def manage(self, *arguments: str, **more: str) -> str:
        """Run a command as the owner of the tables. more: variables that differ from the web's."""
        owner = {"DATABASE_URL": self.database.url_of(logins.OWNER)}
        done = command(self.env | owner | more, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)

    def users(self) -> dict[str, tuple[bool, list[str]]]:
        """By login: superuser or not, and roles."""
        rows = self.database.query(
            "SELECT username, is_superuser, coalesce(array_agg(g.name ORDER BY g.name)"
            " FILTER (WHERE g.name IS NOT NULL), '{}') AS roles FROM auth_user u"
            " LEFT JOIN auth_user_groups m ON m.user_id = u.id"
            " LEFT JOIN auth_group g ON g.id = m.group_id GROUP BY u.id"
        )
        return {row["username"]: (row["is_superuser"], row["roles"]) for row in rows}

    def forget(self) -> None:
        """No users, people, sessions any more."""
        self.database.execute(
            "TRUNCATE auth_user, history_person, django_session, access_journal CASCADE"
        )

    def journal(self) -> list[dict[str, Any]]:
        """The rows of the access journal, oldest first."""
        return self.database.query("SELECT login, action, query FROM access_journal ORDER BY at")

    def said(self) -> str:
        """The log so far."""
        return self.log.read_text()


def inside(person: Person, web: Web) -> bool:
    """Whether the person sees the screens."""
    answer = person.http.get(f"{web.url}/admin/", timeout=20, allow_redirects=False)
    return answer.status_code == 200


def age(web: Web, seconds: int, name: str = "annals_confirmed") -> None:
    """Set a time in every stored session back."""
    code = (
        "from django.contrib.sessions.models import Session\n"
        "from django.contrib.sessions.backends.db import SessionStore\n"
        "for each in Session.objects.all():\n"
        "    store = SessionStore(each.session_key)\n"
        f"    if '{name}' in store:\n"
        f"        store['{name}'] -= {seconds}\n"
        "        store.save()\n"
    )
    web.manage("shell", "-c", code)
