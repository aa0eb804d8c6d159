"""Attacks with documents that make large answers.

The attacks measure the time and the size of an answer, and the memory of the web workers.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import requests

from tests.attack.web import AttackedSite, AttackedWeb, AttackFigure, open_browser

# Limits for one answer. The versions of a page have at most 4 MiB, but a single snapshot may be
# larger.
ANSWER_MB, PEAK_MB, SECONDS = 10, 400, 20
API = "/api/v1/history/product-instance"
SCREEN = "/admin/history/product-instance"


@dataclass(frozen=True, slots=True)
class GiantDocument:
    """A document with many versions, and the addresses that are requested about it."""

    subject: str
    id: str
    versions: int
    fast: int  # the number of versions in the small attack
    questions: tuple[str, ...]

    def make_documents(self, count: int) -> Iterator[str]:
        return (_DOCUMENTS[self.id](number) for number in range(count))


def _make_items(number: int) -> str:
    return json.dumps({"items": [{"pid": f"p{n}", "v": number} for n in range(3_000)]})


def _make_exponents(number: int) -> str:
    return f'{{"v": {number}, "numbers": [{", ".join(["1e131071"] * 500)}]}}'


def _make_rows(number: int, count: int, added: int) -> str:
    rows = [
        {"pid": f"p{n}", "name": f"Квартира номер {n}", "amount": f"{n + added}.00"}
        for n in range(count)
    ]
    return json.dumps({"v": number, "rows": rows}, ensure_ascii=False)


def _make_long_key(number: int) -> str:
    return json.dumps({"k" * 100_000: {f"f{n}": number for n in range(2_000)}})


_DOCUMENTS = {
    "items": _make_items,
    "exponents": _make_exponents,
    "wide": lambda number: _make_rows(number, 400, 0),
    "megabyte": lambda number: _make_rows(number, 12_000, number),
    "long-key": _make_long_key,
}
GIANTS = (
    GiantDocument(
        "100 versions of 3,000 changed items",
        "items",
        100,
        20,
        (
            f"{API}/items",
            f"{API}/items?pageSize=500",
            f"{API}/items/blame",
            f"{SCREEN}/items/",
            f"{SCREEN}/items/compare/?from=1&to=9",
        ),
    ),
    GiantDocument(
        "500 numbers 1e131071",
        "exponents",
        6,
        1,
        (
            f"{API}/exponents",
            f"{SCREEN}/exponents/",
        ),
    ),
    GiantDocument("500 versions of 36 KB", "wide", 500, 50, (f"{API}/wide?pageSize=500",)),
    GiantDocument(
        "60 versions of 1 MB",
        "megabyte",
        60,
        8,
        (
            f"{API}/megabyte",
            f"{API}/megabyte/versions/5",
            f"{SCREEN}/megabyte/",
            f"{SCREEN}/megabyte/versions/5/",
        ),
    ),
    GiantDocument(
        "2,000 fields below a key of 100 KB",
        "long-key",
        3,
        2,
        (
            f"{API}/long-key/versions/1",
            f"{API}/long-key/blame",
        ),
    ),
)


def attack_with_giants(site: AttackedSite, *, fast: bool) -> Iterator[AttackFigure]:
    """Request each address of each giant document, one after the other.

    Args:
        fast: Whether to request only one address of each document. The memory is not measured then.
    """
    for giant in GIANTS:
        site.store_versions(giant.id, giant.make_documents(giant.fast if fast else giant.versions))
    with site.run_own_web() as web:
        session = open_browser(web)
        for giant in GIANTS:
            for address in giant.questions[: 1 if fast else None]:
                _reset_peaks(web.pid)
                began = time.monotonic()
                size = _fetch_size(session, web, address)
                seconds = time.monotonic() - began
                subject = f"{giant.subject}, {address}"
                yield AttackFigure(f"{subject}: answer", round(seconds, 2), SECONDS, "s")
                yield AttackFigure(f"{subject}: its size", round(size / 1e6, 1), ANSWER_MB, "MB")
                if not fast:
                    yield AttackFigure(
                        f"{subject}: peak of a worker", _measure_peak(web.pid), PEAK_MB, "MB"
                    )


def _fetch_size(session: requests.Session, web: AttackedWeb, address: str) -> int:
    """Return the size of an answer in bytes.

    Raises:
        RuntimeError: The answer is not a success.
    """
    response = session.get(f"http://127.0.0.1:{web.port}{address}", timeout=200)
    if response.status_code != 200:
        raise RuntimeError(f"{address}: {response.status_code} {response.content[:300]!r}")
    return len(response.content)


def _list_workers(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children]


def _reset_peaks(pid: int) -> None:
    """Let the kernel measure the peak memory of each worker from now on."""
    for worker in _list_workers(pid):
        Path(f"/proc/{worker}/clear_refs").write_text("5")


def _measure_peak(pid: int) -> float:
    """Return the highest peak memory of all workers in MB."""
    lines = [
        line
        for worker in _list_workers(pid)
        for line in Path(f"/proc/{worker}/status").read_text().splitlines()
        if line.startswith("VmHWM:")
    ]
    return max(round(int(line.split()[1]) / 1024) for line in lines)
