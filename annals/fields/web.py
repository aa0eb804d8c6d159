"""Settings of the web server, the log and the metrics."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from annals.fields.access import Access


class Web(Access, frozen=True, kw_only=True):
    """What the web server answers, how long it takes, and what operators see."""

    allowed_hosts: Annotated[
        tuple[str, ...],
        Meta(description="Host names under which the web server may be reached, comma-separated."),
    ] = ("localhost", "127.0.0.1", "[::1]")
    api_rate: Annotated[
        int,
        Meta(
            ge=0,
            le=10_000_000,
            description="Maximum API requests per minute of one login to one web process; "
            "0 = no limit.",
        ),
    ] = 30_000
    request_seconds: Annotated[
        int,
        Meta(
            ge=1,
            le=600,
            description="Seconds after which the web stops the work for a request, in PostgreSQL "
            "too, and answers 503.",
        ),
    ] = 30
    client_seconds: Annotated[
        int,
        Meta(
            ge=1,
            le=600,
            description="Seconds that a client may take to send a request, or to read an answer. "
            "One that sends or reads 10 KB a second may take longer.",
        ),
    ] = 20
    download_seconds: Annotated[
        int,
        Meta(
            ge=1,
            le=86400,
            description="Seconds after which the web ends a download of the access journal. "
            "The file then ends with NOT COMPLETE, and the connection is reset.",
        ),
    ] = 600
    dear_requests: Annotated[
        int,
        Meta(
            ge=1,
            le=5,
            description="How many questions about whole histories (blame, the history of a field, "
            "applications, changes of a path, the archive, pages of more than 100 versions) one "
            "web process answers at a time. "
            "Twice as many more wait for 2 seconds, others get 503. A process has 16 threads.",
        ),
    ] = 4
    https: Annotated[
        bool,
        Meta(
            description="Set it where users reach the web server over HTTPS: cookies become "
            "secure, plain HTTP is redirected, HSTS is sent, for the host and those below its name."
        ),
    ] = False
    log_level: Annotated[
        str,
        Meta(pattern="^(DEBUG|INFO|WARNING|ERROR)$", description="Lowest level that is logged."),
    ] = "INFO"
    log_format: Annotated[
        str,
        Meta(
            pattern="^(console|json)$",
            description="`console`: text lines for people; "
            "`json`: one JSON object per line, for a log collector.",
        ),
    ] = "console"
    metrics_token: Annotated[
        Annotated[str, Meta(min_length=16)] | None,
        Meta(
            description="Bearer token that a client must send to read `/metrics`. "
            "Unset: `/metrics` is open in the demo and closed elsewhere."
        ),
    ] = None
