"""Whether `runserver` can listen where it is asked to. Django says it after its checks, and in a
process of its own, which starts for each change of a file."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Mapping
from typing import Final

from django.core.management.commands.runserver import naiveip_re

PORT: Final = "8000"
HIGHEST: Final = 65_535

_WHAT: Final[Mapping[int, str]] = {
    errno.EACCES: "this user may not listen there",
    errno.EADDRINUSE: "it is in use",
    errno.EADDRNOTAVAIL: "this machine does not have the address",
}


def fault(given: str | None, ipv6: bool) -> str | None:
    """The sentence about the address that `runserver` was given, None if it can listen there.

    given: a port, or a host and a port; None for the usual one.
    """
    found = naiveip_re.fullmatch(given or PORT)
    if found is None:
        return f"{given!r} is no place to listen. Give a port or host and port, as 127.0.0.1:8000."
    host = (found["addr"] or ("::1" if ipv6 else "127.0.0.1")).strip("[]")
    port = int(found["port"])
    if port > HIGHEST:
        return f"there is no port {port}. A port is a number up to {HIGHEST}."
    family = socket.AF_INET6 if ipv6 or ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        why = _WHAT.get(error.errno or 0) or error.strerror or str(error)
        return f"port {port} of {host}: {why}. Give another, for example `runserver 8001`."
    return None


def is_again() -> bool:
    """Whether this process is Django's, which runs the server and is started again for changes."""
    return os.environ.get("RUN_MAIN") == "true"
