"""Settings of the time in which Annals takes over from the system that it replaces."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from annals.fields.web import Web


class Moving(Web, frozen=True, kw_only=True):
    """The old service: where it is, until when it is asked, and how long it may take."""

    fallback_url: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(
            description="Address of the service that Annals replaces, such as "
            "`https://old.example`; its API is at `/api/v1/` below it. Timelines also have the "
            "versions that only it has; see docs/migration.md. Unset: it is not asked."
        ),
    ] = None
    fallback_until: Annotated[
        date | None,
        Meta(
            description="Last day, in UTC, on which the old service is asked; required with "
            "ANNALS_FALLBACK_URL."
        ),
    ] = None
    fallback_token_file: Annotated[
        Path | None,
        Meta(
            description="File with the Bearer token for the old service; it is read before each "
            "call, so it can be replaced. Unset: calls have no token."
        ),
    ] = None
    fallback_ca_file: Annotated[
        Path | None,
        Meta(
            description="PEM file with the certificate authorities of the old service. Unset: "
            "those that are trusted by default."
        ),
    ] = None
    fallback_seconds: Annotated[
        float,
        Meta(
            ge=0.1,
            le=20,
            description="Seconds that one request may wait for the old service, all calls for it "
            "together.",
        ),
    ] = 2.0
