"""Simulated people, with logins of every role, who open screens and call the API now and then."""

import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from urllib.parse import quote

from annals.demo.client import LOGINS, DemoClient
from history.kinds.entities import ENTITIES, get_root
from tests.soak.recorder import SentKey

NAMES = {entity.table: entity.name for entity in ENTITIES}
QUARANTINE, JOURNAL = "/admin/ingest/quarantined/", "/admin/journal/"
READERS = ("support", "auditor", "underwriter", "privacy")
# After so many pages everybody logs in again.
SHIFT = 60
# How long an answer may be 404, because the recorder can read a version before the consumers do.
READ_WITHIN_S = 60
_STATUS = re.compile(r": (\d{3}) ")


class PersonThread(threading.Thread):
    """A thread that acts as a random person again and again, until stop_person() is called."""

    def __init__(self, address: str, recent: Callable[[], Sequence[SentKey]], seed: int) -> None:
        super().__init__(daemon=True)
        self._address, self._recent = address, recent
        self._random = random.Random(seed)
        self._end = threading.Event()
        self._clients: dict[str, DemoClient] = {}
        self.answers: Counter[str] = Counter()
        self.failures: list[tuple[datetime, str, str]] = []
        self.logins = 0

    def run(self) -> None:
        actions = 0
        while not self._end.wait(self._random.uniform(0.2, 0.8)):
            if actions % SHIFT == 0:
                self._clients.clear()
            actions += 1
            login = self._random.choice(list(LOGINS))
            if login not in self._clients:
                self._clients[login] = DemoClient(self._address, login, login)
                self.logins += 1
            self._open_random_page(login, self._clients[login])

    def stop_person(self) -> None:
        self._end.set()
        self.join()

    def _open_random_page(self, login: str, client: DemoClient) -> None:
        recent = self._recent()
        applications = [key for key in recent if key.table == get_root().table]
        action = self._random.choice(("screen", "page", "timeline", "search"))
        request: Callable[[], object]
        if login == "ops" or (login == "admin" and action == "screen"):
            request = partial(client.open_screen, self._random.choice((QUARANTINE, "/admin/")))
        elif login == "privacy" and action == "screen":
            request = partial(client.open_screen, JOURNAL)
        elif not applications:
            return
        elif action == "timeline":
            key = self._random.choice(recent)
            address = f"history/{NAMES[key.table]}/{quote(key.id, safe='')}"
            request = partial(client.get_data, address, pageSize=20)
        elif action == "search":
            request = partial(client.get_data, "completeness")
        else:
            key = self._random.choice(applications)
            address = f"/admin/history/{NAMES[key.table]}/{quote(key.id, safe='')}/"
            request = partial(client.open_screen, address)
        began = time.monotonic()
        while (failure := _try_request(request)) is not None:
            status, text = failure
            if status == "404" and time.monotonic() < began + READ_WITHIN_S:
                self.answers[f"{action} not read yet"] += 1
                time.sleep(1)
                continue
            self.answers[f"{action} {status}"] += 1
            self.failures.append((datetime.now(UTC), status, f"{login} {action}: {text[:300]}"))
            return
        self.answers[f"{action} 200"] += 1


def _try_request(request: Callable[[], object]) -> tuple[str, str] | None:
    """Send a request, and return None if it succeeds.

    Otherwise return the status of the answer, or the name of the error, and the error's text.
    """
    try:
        request()
    except Exception as error:
        text = str(error)
        match = _STATUS.search(text)
        return match[1] if match else type(error).__name__, text
    return None
