"""People who use the web lightly: real logins of every role, screens and timelines."""

from __future__ import annotations

import random
import re
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from urllib.parse import quote

from annals.demo.client import Client
from annals.demo.people import JOURNAL, LOGINS, QUARANTINE
from history.entities import ENTITIES, ROOT
from tests.soak.recorder import Key

NAMES = {entity.table: entity.name for entity in ENTITIES}
READERS = ("support", "auditor", "underwriter", "privacy")
# A person logs in again after this number of pages.
SHIFT = 60
_STATUS = re.compile(r": (\d{3}) ")


class People(threading.Thread):
    """One person after the other does a few things, each after a pause, until stop()."""

    def __init__(self, address: str, recent: Callable[[], Sequence[Key]], seed: int) -> None:
        super().__init__(daemon=True)
        self._address, self._recent = address, recent
        self._random = random.Random(seed)
        self._end = threading.Event()
        self._clients: dict[str, Client] = {}
        self.answers: Counter[str] = Counter()
        self.failures: list[tuple[datetime, str, str]] = []
        self.logins = 0

    def run(self) -> None:
        done = 0
        while not self._end.wait(self._random.uniform(0.2, 0.8)):
            if done % SHIFT == 0:
                self._clients.clear()
            done += 1
            login = self._random.choice(list(LOGINS))
            if login not in self._clients:
                self._clients[login] = Client(self._address, login, login)
                self.logins += 1
            self._one(login, self._clients[login])

    def stop(self) -> None:
        self._end.set()
        self.join()

    def _one(self, login: str, client: Client) -> None:
        recent = self._recent()
        known = [key for key in recent if key.table == ROOT.table]
        what = self._random.choice(("screen", "page", "timeline", "search"))
        try:
            if login == "ops" or (login == "admin" and what == "screen"):
                client.screen(self._random.choice((QUARANTINE, "/admin/")))
            elif login == "privacy" and what == "screen":
                client.screen(JOURNAL)
            elif not known:
                return
            elif what == "timeline":
                key = self._random.choice(recent)
                client.get(f"history/{NAMES[key.table]}/{quote(key.id, safe='')}", pageSize=20)
            elif what == "search":
                client.get("completeness")
            else:
                key = self._random.choice(known)
                client.screen(f"/admin/history/{NAMES[key.table]}/{quote(key.id, safe='')}/")
            self.answers[f"{what} 200"] += 1
        except Exception as error:
            text = str(error)
            match = _STATUS.search(text)
            status = match[1] if match else type(error).__name__
            self.answers[f"{what} {status}"] += 1
            self.failures.append((datetime.now(UTC), status, f"{login} {what}: {text[:300]}"))
