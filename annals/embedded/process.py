"""Detached server processes, which outlive the command that started them; ports and lock files."""

import os
import pwd
import random
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import psutil

from history.base.private_files import exclusive as exclusive
from history.base.private_files import write as write
from history.failure.complaints import Complaint

HOST = "127.0.0.1"

# Below the ephemeral ports: a client that retries could get its server's port for itself.
PORTS = range(20_000, 32_000)

# Parents of kernel threads, which have no command line either.
KERNEL = (0, 2)

# The only variables that a server inherits: no settings, and no passwords of ours.
INHERITED = ("PATH", "HOME", "TMPDIR", "LANG", "LD_LIBRARY_PATH")

# Popen warns if it is garbage-collected before its process ends; our servers outlive it.
_children: dict[int, "subprocess.Popen[bytes]"] = {}


class EmbeddedError(Complaint, RuntimeError):
    """An embedded server could not be created, started or stopped; the text says which and why."""


def inherited() -> dict[str, str]:
    """The environment of a server."""
    return {name: os.environ[name] for name in INHERITED if name in os.environ}


def spawn(
    argv: Sequence[str | Path],
    log: Path,
    cwd: Path,
    env: Mapping[str, str],
    account: pwd.struct_passwd | None = None,
) -> int:
    """Start `argv` in a session of its own and return its pid. Its output goes to the end of `log`.

    Ctrl-C in the terminal does not reach it. account: the user to run as (only root may give one).
    """
    with log.open("ab") as output:
        child = subprocess.Popen(
            [str(part) for part in argv],
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
            extra_groups=[] if account else None,
        )
    _children[child.pid] = child
    return child.pid


def alive(pid: int, marker: str) -> bool:
    """Whether `pid` runs and has `marker` in its command line."""
    child = _children.get(pid)
    if child is not None and child.poll() is not None:
        del _children[pid]
        return False
    try:
        found = psutil.Process(pid)
        try:
            line = " ".join(found.cmdline())
        except psutil.ZombieProcess:
            return found.num_threads() > 1
        if line:
            return marker in line
        return found.ppid() not in KERNEL
    except psutil.Error:
        return False


def end(pid: int, marker: str, sign: signal.Signals, timeout: float) -> bool:
    """Send `sign` and wait at most `timeout` seconds. Returns whether the process has ended."""
    if not alive(pid, marker):
        return True
    try:
        os.kill(pid, sign)
    except ProcessLookupError:
        return True
    gone = wait(lambda: not alive(pid, marker), timeout)
    if gone and pid in _children:  # it ended before it was collected
        _children.pop(pid).wait()
    return gone


def wait(condition: Callable[[], bool], timeout: float) -> bool:
    """Check `condition` until it holds; False after `timeout` seconds."""
    began = time.monotonic()
    while not condition():
        passed = time.monotonic() - began
        if passed > timeout:
            return False
        time.sleep(min(max(passed / 10, 0.01), 0.1))
    return True


def free_ports(wanted: Sequence[int | None]) -> list[int]:
    """Different free TCP ports on the loopback address, one for each entry of `wanted`: the wanted
    port if it is free, another if it is not free or None."""
    with ExitStack() as held:
        return [_bind(held, port) for port in wanted]


def _bind(held: ExitStack, wanted: int | None) -> int:
    """The port of a socket that is bound to `wanted` or another port until `held` closes."""
    for port in ([] if wanted is None else [wanted]) + random.sample(PORTS, 100):
        probe = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            continue
        return port
    raise EmbeddedError(f"no free TCP port on {HOST}")


def listens(pid: int, ports: Iterable[int]) -> bool:
    """Whether the process listens on all of these TCP ports. A connection would not show it."""
    try:
        connections = psutil.Process(pid).net_connections("tcp")
    except psutil.Error:
        return False
    listening = {each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN}
    return listening.issuperset(ports)


def tail(path: Path, offset: int = 0, lines: int = 15) -> str:
    """The last `lines` lines of a log after byte `offset`, for an error message."""
    if not path.exists():
        return ""
    with path.open("rb") as handle:
        handle.seek(offset)
        text = handle.read().decode("utf-8", "replace")
    return "\n".join(text.splitlines()[-lines:])


def new_password() -> str:
    """A new password. Its characters need no quoting in a URI or a configuration file."""
    return secrets.token_urlsafe(24)


def replace(path: Path, text: str) -> None:
    """Write a file in a folder of another user, as that user's."""
    write(path, text, path.parent.stat())
