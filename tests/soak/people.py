"""People who use the web lightly: real logins of every role, screens and timelines."""

import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from urllib.parse import quote

from annals.demo.client import LOGINS, Client
from history.entities import ENTITIES, root
from tests.soak.recorder import Key

NAMES = {entity.table: entity.name for entity in ENTITIES}
QUARANTINE, JOURNAL = "/admin/ingest/quarantined/", "/admin/journal/"
READERS = ("support", "auditor", "underwriter", "privacy")
# A person logs in again after this number of pages.
SHIFT = 60
# The recorder may read a version before the consumers do: until then the answer is 404.
READ_WITHIN_S = 60
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
        known = [key for key in recent if key.table == root().table]
        what = self._random.choice(("screen", "page", "timeline", "search"))
        ask: Callable[[], object]
        if login == "ops" or (login == "admin" and what == "screen"):
            ask = partial(client.screen, self._random.choice((QUARANTINE, "/admin/")))
        elif login == "privacy" and what == "screen":
            ask = partial(client.screen, JOURNAL)
        elif not known:
            return
        elif what == "timeline":
            key = self._random.choice(recent)
            address = f"history/{NAMES[key.table]}/{quote(key.id, safe='')}"
            ask = partial(client.get, address, pageSize=20)
        elif what == "search":
            ask = partial(client.get, "completeness")
        else:
            key = self._random.choice(known)
            address = f"/admin/history/{NAMES[key.table]}/{quote(key.id, safe='')}/"
            ask = partial(client.screen, address)
        began = time.monotonic()
        while (failed := _failure(ask)) is not None:
            status, text = failed
            if status == "404" and time.monotonic() < began + READ_WITHIN_S:
                self.answers[f"{what} not read yet"] += 1
                time.sleep(1)
                continue
            self.answers[f"{what} {status}"] += 1
            self.failures.append((datetime.now(UTC), status, f"{login} {what}: {text[:300]}"))
            return
        self.answers[f"{what} 200"] += 1


def _failure(ask: Callable[[], object]) -> tuple[str, str] | None:
    """The status of a bad answer, or the name of the error, and what it says."""
    try:
        ask()
    except Exception as error:
        text = str(error)
        match = _STATUS.search(text)
        return match[1] if match else type(error).__name__, text
    return None
