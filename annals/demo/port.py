"""The TCP port of the demo's web server. It is held from the moment it is chosen, so that no other
program can take it before the web server starts."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass

# `localhost` means either of them.
LOOPBACK = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
NO_SUCH_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


@dataclass(frozen=True, slots=True)
class Port:
    """A port number, and the sockets that listen on it on all loopback addresses."""

    number: int
    sockets: tuple[socket.socket, ...]

    def close(self) -> None:
        """Close the sockets of this process; those that a child inherited stay open."""
        for each in self.sockets:
            each.close()


def hold(number: int) -> Port | None:
    """Listen on this port, or on any free port for 0. None if another program uses it."""
    sockets: list[socket.socket] = []
    for family, host in LOOPBACK:
        try:
            sockets.append(_listen(family, host, number))
        except OSError as error:
            if sockets and error.errno in NO_SUCH_ADDRESS:  # a machine without IPv6
                continue
            Port(number, tuple(sockets)).close()
            return None
        number = sockets[0].getsockname()[1]
    return Port(number, tuple(sockets))


def _listen(family: int, host: str, number: int) -> socket.socket:
    """A listening socket: one that is only bound does not keep others from listening."""
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, number))
        made.listen()
    except OSError:
        made.close()
        raise
    return made
