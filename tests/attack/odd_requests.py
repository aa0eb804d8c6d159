"""Attacks with odd requests.

The client tries to forge lines of the log, to control the terminal of a person who reads the log,
or to add many lines to the metrics.
"""

import base64
import json
from collections.abc import Callable, Iterator
from urllib.parse import quote

from tests.attack.web import AttackedSite, AttackedWeb, AttackFigure

MARK = "forged"
FORGED = [
    f"x\n2026-11-22 00:00:00.000 INFO    annals.access: {MARK} a login",
    f"x\r{MARK}",
    f"x\x1b[2J\x1b]0;{MARK}\x07",
    f"x\u2028{MARK}\u2029{MARK}",
    f"x\x85{MARK}\x9b31m",
    f"x\u202e{MARK}",
]


def attack_logs(site: AttackedSite, *, fast: bool) -> Iterator[AttackFigure]:
    """Send control characters and forged lines, and count them in the log.

    With `fast`, only the format `console` of the log is tested; otherwise also the format `json`.
    """
    for style in ("console",) if fast else ("console", "json"):
        with site.run_web(ANNALS_LOG_FORMAT=style) as web:
            for text in FORGED:
                _send_forged(web, text)
        # str.splitlines() also splits at separators that a reader of the log may take for a new
        # line, such as U+2028.
        log_text = web.log.read_text(encoding="utf-8", errors="surrogateescape")
        control_characters = sum(not (char.isprintable() or char == "\n") for char in log_text)
        forged_lines = sum(
            MARK in line and not _is_log_line(line, style) for line in log_text.splitlines()
        )
        yield AttackFigure(f"{style}: control characters in the log", control_characters, 0)
        yield AttackFigure(f"{style}: lines that a client wrote", forged_lines, 0)


def _send_forged(web: AttackedWeb, text: str) -> None:
    path = quote(text)
    credentials = "Basic " + base64.b64encode(f"{text}:wrong".encode()).decode()
    header = text.replace("\n", " ").replace("\r", " ").encode().decode("latin-1")
    web.send_request(f"/{path}")
    web.send_request(f"/api/v1/history/product-instance/{path}")
    web.send_request(f"/api/v1/history/{path}/1")
    web.send_request(f"/api/v1/search?q={path}")
    for headers in (
        {"Authorization": credentials},
        {"X-Request-ID": header, "User-Agent": header},
        {"X-Forwarded-For": header, "Accept-Language": header},
        {"Authorization": f"Bearer {header}"},
    ):
        web.send_request("/api/v1/completeness", headers=headers)


def _is_log_line(line: str, style: str) -> bool:
    """Return whether Annals, and not a client, wrote this line of the log.

    A line of Annals has the format of the log. In the format "console", a line that begins with the
    forged log entry of FORGED was written by a client.

    Args:
        style: The format of the log, "console" or "json".
    """
    if style == "json":
        try:
            return isinstance(json.loads(line), dict)
        except ValueError:
            return False
    return line[:2] == "20" and f"annals.access: {MARK}" not in line[:60]


def attack_metrics(site: AttackedSite, *, fast: bool) -> Iterator[AttackFigure]:
    """Send requests with many odd methods and addresses, and count the new lines of /metrics."""
    count = 50 if fast else 200
    with site.run_web() as web:
        kinds: dict[str, Callable[[int], object]] = {
            "methods": lambda n: web.send_request("/api/v1/completeness", method=f"BREW{n}"),
            "addresses": lambda n: web.send_request(f"/nothing/{n}"),
            "API addresses": lambda n: web.send_request(f"/api/v1/history/kind{n}/{n}"),
            "addresses of screens": lambda n: web.send_request(f"/admin/{n}/"),
        }
        for name, send_request in kinds.items():
            send_request(count)
            lines_before = _count_request_lines(web)
            for number in range(count):
                send_request(number)
            yield AttackFigure(
                f"{count} odd {name}: new lines of /metrics",
                _count_request_lines(web) - lines_before,
                0,
            )


def _count_request_lines(web: AttackedWeb) -> int:
    """Count the lines of /metrics whose metric is about HTTP requests."""
    text = web.behind.send_request("/metrics").body.decode()
    return sum(line.startswith("annals_http_") for line in text.splitlines())
