"""The logins of the demo: one for each role, with its own name for a password."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from annals.demo.client import Client, ClientError

QUARANTINE: Final = "/admin/ingest/quarantined/"
JOURNAL: Final = "/admin/journal/"

# What each may do, in words.
LOGINS: Final = {
    "support": "reads applications, sensitive fields masked",
    "auditor": "reads the same",
    "ops": "quarantine, ledger and completeness; no application",
    "underwriter": "reads applications whole",
    "privacy": "reads them masked, shows one value for a reason, reads the access journal",
    "admin": "reads them masked; quarantine, ledger, people, field labels, logins",
}

# Those who read applications with sensitive fields masked.
MASKED: Final = ("support", "auditor", "privacy", "admin")


def opened(address: str, application: str) -> dict[str, list[str]]:
    """By login, which of the three screens open for it: `application` (the address of one),
    QUARANTINE and JOURNAL."""
    return {
        login: [
            screen
            for screen in (application, QUARANTINE, JOURNAL)
            if _opens(Client(address, login, login).screen, screen)
        ]
        for login in LOGINS
    }


def _opens(get: Callable[[str], str], screen: str) -> bool:
    try:
        get(screen)
    except ClientError:  # 403
        return False
    return True
