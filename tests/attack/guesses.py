"""Passwords tried at once, and refused requests to fill the access journal."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator

import requests

from tests.attack.result import Figure
from tests.attack.web import PROXY, Site, Web, slowest, together

AT_ONCE = 16
CHECKED = 5  # wrong passwords of one name from one address, before it has to wait
# Rows of one client in a minute in each of two processes, and two rows that sum up.
ROWS = 2 * 21
GUESSERS = 40
PAGE_S = 2.0


def run(site: Site, *, fast: bool) -> Iterator[Figure]:
    """How many passwords are hashed, and how many rows are written."""
    with site.serve(**PROXY) as web:
        yield _from_many_addresses(web, 5 if fast else 20)
        _guess(web)
        said = web.log.read_text().splitlines()
        hashed = sum("login failed for 'ops'" in line and "wrong" in line for line in said)
        yield Figure(f"{AT_ONCE} wrong passwords at once: hashed", hashed, CHECKED)
        before = _rows(web)
        count = 200 if fast else 2000
        with together(4, lambda: [_anonymous(web) for _ in range(count // 4)]):
            pass
        rows = _rows(web) - before
        yield Figure(f"{count} requests without a login: rows of the journal", rows, ROWS)


def _guess(web: Web) -> None:
    """Each with a form of its own; they send it at one time."""
    ready = threading.Barrier(AT_ONCE)

    def guess() -> None:
        address = f"http://127.0.0.1:{web.port}/admin/login/"
        http = requests.Session()
        page = http.get(address, timeout=30)
        field = page.text.split('name="csrfmiddlewaretoken" value="')[1].split('"')[0]
        ready.wait(60)
        form = {"username": "ops", "password": "wrong", "csrfmiddlewaretoken": field}
        http.post(address, data=form, timeout=60)

    with together(AT_ONCE, guess):
        pass


def _from_many_addresses(web: Web, seconds: float) -> Figure:
    """Each guess has a name and an address of its own, so none has to wait."""
    end = time.monotonic() + seconds

    def guess() -> None:
        http = requests.Session()
        token = "a" * 32
        while time.monotonic() < end:
            one = random.randrange(1 << 32)
            http.post(
                f"http://127.0.0.1:{web.port}/admin/login/",
                headers={"X-Forwarded-For": f"2001:db8:{one >> 16:x}:{one & 0xFFFF:x}::1"},
                cookies={"csrftoken": token},
                data={"username": f"n{one}", "password": "x", "csrfmiddlewaretoken": token},
                timeout=60,
            )

    with together(GUESSERS, guess):
        slow = slowest(lambda: web.get("/admin/login/"), seconds)
    what = f"{GUESSERS} clients guess from many addresses: slowest other page"
    return Figure(what, slow, PAGE_S, "s")


def _anonymous(web: Web) -> int:
    return web.get("/api/v1/search?q=x", headers={"Authorization": ""}).status


def _rows(web: Web) -> int:
    ((found,),) = web.query("SELECT count(*) FROM access_journal WHERE actor = 'nobody'")
    return int(found)
