"""Which addresses of a provider are usable: in calls, redirects, headers and documents."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import SplitResult, urlsplit

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
LONGEST: Final = 2_000
# ASCII only, and none of the characters that end a source or a directive of a policy.
_FORM: Final = re.compile(
    r"https?://(?:[\w.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?(?:[/?][\w~:/?@!$&()*+=%.-]*)?",
    re.ASCII | re.IGNORECASE,
)


def parts(address: object) -> SplitResult | None:
    """The parts of an address that is usable at all; None: it is not."""
    if not isinstance(address, str) or len(address) > LONGEST or not _FORM.fullmatch(address):
        return None
    try:
        found = urlsplit(address)
        usable = found.hostname and found.port != 0
    except ValueError:
        return None
    return found if usable else None


def is_usable(address: object, issuer: str) -> bool:
    """Over TLS, or where the issuer itself is on the loopback address, also there: a provider
    elsewhere must not send us, with the client secret, to a program on this machine."""
    found = parts(address)
    return found is not None and (
        found.scheme == "https"
        or (found.hostname in LOOPBACK and urlsplit(issuer).scheme == "http")
    )
