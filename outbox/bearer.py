"""Who may read versions: whoever has a token of a file."""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import Final

from outbox.errors import WrongSettings

SHORTEST: Final = 32


def tokens(file: str | Path) -> list[bytes]:
    """The tokens in a file, one on each line: while a token is replaced, both are there. Raises
    WrongSettings."""
    name = 'settings.OUTBOX["RESEND_TOKEN_FILE"]'
    try:
        found = Path(file).read_bytes().split()
    except OSError as error:
        raise WrongSettings(f"{name} cannot be read: {error.strerror}: {file}") from None
    if not found:
        raise WrongSettings(f"{name} has no token: {file}")
    if not all(each.isascii() for each in found):
        what = "a token has ASCII characters only, and the file no byte order mark"
        raise WrongSettings(f"{name}: {what}: {file}")
    if any(len(each) < SHORTEST for each in found):
        raise WrongSettings(f"{name}: a token has {SHORTEST} characters or more: {file}")
    return found


def allows(header: str, accepted: list[bytes]) -> bool:
    """Whether the header Authorization has one of these tokens. The time that it takes says nothing
    about them."""
    scheme, _, token = header.partition(" ")
    given = token.strip().encode("utf-8", "surrogateescape")
    matches = [hmac.compare_digest(given, each) for each in accepted]
    return scheme.lower() == "bearer" and any(matches)
