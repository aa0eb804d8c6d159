"""Documents that make large answers: how long one takes, how large it is, what the web needs."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import requests

from tests.attack.web import Figure, Site, Web, browser

# A page is 4 MiB, and everything that is not a version; a single document may be larger.
ANSWER_MB, PEAK_MB, SECONDS = 10, 400, 20
API = "/api/v1/history/product-instance"
SCREEN = "/admin/history/product-instance"


@dataclass(frozen=True, slots=True)
class Giant:
    """A document with many versions, and what is asked about it. fast: the number of versions in
    the small attack."""

    what: str
    id: str
    versions: int
    fast: int
    questions: tuple[str, ...]

    def documents(self, count: int) -> Iterator[str]:
        return (_DOCUMENTS[self.id](number) for number in range(count))


def _items(number: int) -> str:
    return json.dumps({"items": [{"pid": f"p{n}", "v": number} for n in range(3_000)]})


def _exponents(number: int) -> str:
    return f'{{"v": {number}, "numbers": [{", ".join(["1e131071"] * 500)}]}}'


def _rows(number: int, count: int, added: int) -> str:
    rows = [
        {"pid": f"p{n}", "name": f"Квартира номер {n}", "amount": f"{n + added}.00"}
        for n in range(count)
    ]
    return json.dumps({"v": number, "rows": rows}, ensure_ascii=False)


def _long_key(number: int) -> str:
    return json.dumps({"k" * 100_000: {f"f{n}": number for n in range(2_000)}})


_DOCUMENTS = {
    "items": _items,
    "exponents": _exponents,
    "wide": lambda number: _rows(number, 400, 0),
    "megabyte": lambda number: _rows(number, 12_000, number),
    "long-key": _long_key,
}
GIANTS = (
    Giant("100 versions of 3,000 changed items", "items", 100, 20, (
        f"{API}/items", f"{API}/items?pageSize=500", f"{API}/items/blame",
        f"{SCREEN}/items/", f"{SCREEN}/items/compare/?from=1&to=9",
    )),
    Giant("500 numbers 1e131071", "exponents", 6, 1, (
        f"{API}/exponents", f"{SCREEN}/exponents/",
    )),
    Giant("500 versions of 36 KB", "wide", 500, 50, (f"{API}/wide?pageSize=500",)),
    Giant("60 versions of 1 MB", "megabyte", 60, 8, (
        f"{API}/megabyte", f"{API}/megabyte/versions/5", f"{SCREEN}/megabyte/",
        f"{SCREEN}/megabyte/versions/5/",
    )),
    Giant("2,000 fields below a key of 100 KB", "long-key", 3, 2, (
        f"{API}/long-key/versions/1", f"{API}/long-key/blame",
    )),
)  # fmt: skip


def run(site: Site, *, fast: bool) -> Iterator[Figure]:
    """Ask for each of them, one after another. The small attack does not measure the memory: it may
    share its server with other attacks."""
    for giant in GIANTS:
        site.store_all(giant.id, giant.documents(giant.fast if fast else giant.versions))
    with site.serve_alone() as web:
        session = browser(web)
        for giant in GIANTS:
            for address in giant.questions[: 1 if fast else None]:
                _forget_peaks(web.pid)
                began = time.monotonic()
                size = _ask(session, web, address)
                seconds = time.monotonic() - began
                what = f"{giant.what}, {address}"
                yield Figure(f"{what}: answer", round(seconds, 2), SECONDS, "s")
                yield Figure(f"{what}: its size", round(size / 1e6, 1), ANSWER_MB, "MB")
                if not fast:
                    yield Figure(f"{what}: peak of a worker", _peak(web.pid), PEAK_MB, "MB")


def _ask(session: requests.Session, web: Web, address: str) -> int:
    """The bytes of the answer. Raises RuntimeError if it is none of success."""
    answer = session.get(f"http://127.0.0.1:{web.port}{address}", timeout=200)
    if answer.status_code != 200:
        raise RuntimeError(f"{address}: {answer.status_code} {answer.content[:300]!r}")
    return len(answer.content)


def _workers(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children]


def _forget_peaks(pid: int) -> None:
    """The kernel measures the peak memory of each worker from now on."""
    for worker in _workers(pid):
        Path(f"/proc/{worker}/clear_refs").write_text("5")


def _peak(pid: int) -> float:
    """The most memory that any worker had at once, in MB."""
    lines = [
        line
        for worker in _workers(pid)
        for line in Path(f"/proc/{worker}/status").read_text().splitlines()
        if line.startswith("VmHWM:")
    ]
    return max(round(int(line.split()[1]) / 1024) for line in lines)
