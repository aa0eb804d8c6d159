"""Methods and addresses that nobody uses, to fill the metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.attack.result import Figure
from tests.attack.web import Site, Web

COUNT = 200


def run(site: Site, *, fast: bool) -> Iterator[Figure]:
    """How many lines /metrics grows by."""
    count = COUNT // 4 if fast else COUNT
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
    text = web.get("/metrics").body.decode()
    return sum(line.startswith("annals_http_") for line in text.splitlines())
