"""Requests that write lines of their own into the log, command its reader's terminal, or fill the
metrics."""

import base64
import json
from collections.abc import Callable, Iterator
from urllib.parse import quote

from tests.attack.web import Figure, Site, Web

MARK = "forged"
FORGED = [
    f"x\n2026-11-22 00:00:00.000 INFO    annals.access: {MARK} a login",
    f"x\r{MARK}",
    f"x\x1b[2J\x1b]0;{MARK}\x07",
    f"x\u2028{MARK}\u2029{MARK}",
    f"x\x85{MARK}\x9b31m",
    f"x\u202e{MARK}",
]


def forged_logs(site: Site, *, fast: bool) -> Iterator[Figure]:
    """Control characters that reach the log as they are, in either format."""
    for style in ("console",) if fast else ("console", "json"):
        with site.serve(ANNALS_LOG_FORMAT=style) as web:
            for text in FORGED:
                _send(web, text)
        # Not splitlines on the text alone: each line is to be one for every reader.
        raw = web.log.read_text(encoding="utf-8", errors="surrogateescape")
        bad = sum(not (char.isprintable() or char == "\n") for char in raw)
        alone = sum(MARK in line and not _begins_well(line, style) for line in raw.splitlines())
        yield Figure(f"{style}: control characters in the log", bad, 0)
        yield Figure(f"{style}: lines that a client wrote", alone, 0)


def _send(web: Web, text: str) -> None:
    path = quote(text)
    basic = "Basic " + base64.b64encode(f"{text}:wrong".encode()).decode()
    header = text.replace("\n", " ").replace("\r", " ").encode().decode("latin-1")
    web.get(f"/{path}")
    web.get(f"/api/v1/history/product-instance/{path}")
    web.get(f"/api/v1/history/{path}/1")
    web.get(f"/api/v1/search?q={path}")
    for given in (
        {"Authorization": basic},
        {"X-Request-ID": header, "User-Agent": header},
        {"X-Forwarded-For": header, "Accept-Language": header},
        {"Authorization": f"Bearer {header}"},
    ):
        web.get("/api/v1/completeness", headers=given)


def _begins_well(line: str, style: str) -> bool:
    """Whether the line has the form of the log and says from whom the mark is."""
    if style == "json":
        try:
            return isinstance(json.loads(line), dict)
        except ValueError:
            return False
    return line[:2] == "20" and f"annals.access: {MARK}" not in line[:60]


def odd_requests(site: Site, *, fast: bool) -> Iterator[Figure]:
    """How many lines /metrics grows by."""
    count = 50 if fast else 200
    with site.serve() as web:
        kinds: dict[str, Callable[[int], object]] = {
            "methods": lambda n: web.get("/api/v1/completeness", method=f"BREW{n}"),
            "addresses": lambda n: web.get(f"/nothing/{n}"),
            "API addresses": lambda n: web.get(f"/api/v1/history/kind{n}/{n}"),
            "addresses of screens": lambda n: web.get(f"/admin/{n}/"),
        }
        for name, ask in kinds.items():
            ask(count)
            before = _lines(web)
            for number in range(count):
                ask(number)
            yield Figure(f"{count} odd {name}: new lines of /metrics", _lines(web) - before, 0)


def _lines(web: Web) -> int:
    """Lines about requests; those about the store do not depend on them."""
    text = web.behind.get("/metrics").body.decode()
    return sum(line.startswith("annals_http_") for line in text.splitlines())
