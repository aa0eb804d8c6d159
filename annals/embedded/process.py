"""Starts and ends detached server processes, and chooses free ports for them."""

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

from history.common.explained_errors import ExplainedError
from history.common.private_files import write_private_file

HOST = "127.0.0.1"

# Below the ephemeral ports. From these, the kernel could give a client that tries to connect the
# very port on which its server is about to listen.
PORT_RANGE = range(20_000, 32_000)

# The parents of kernel threads, which do not have a command line.
KERNEL_PIDS = (0, 2)

# The only variables that a server inherits. Others may have settings and passwords.
INHERITED_VARIABLES = ("PATH", "HOME", "TMPDIR", "LANG", "LD_LIBRARY_PATH")

# Keeps each Popen, which warns if it is garbage-collected while its process runs.
_children: dict[int, "subprocess.Popen[bytes]"] = {}


class EmbeddedError(ExplainedError, RuntimeError):
    """Raised when an embedded server cannot be created, started or stopped."""


def make_environment() -> dict[str, str]:
    """Return the environment variables with which an embedded server starts.

    They are the INHERITED_VARIABLES of this process. All other variables are left out, because they
    can contain settings and passwords.
    """
    return {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}


def spawn_server(
    argv: Sequence[str | Path],
    log: Path,
    cwd: Path,
    env: Mapping[str, str],
    account: pwd.struct_passwd | None = None,
) -> int:
    """Start a process in a session of its own, and return its pid.

    Ctrl-C in the terminal does not reach the process.

    Args:
        argv: The command line.
        log: The file to which the output is appended.
        cwd: The folder in which the process runs.
        env: All environment variables of the process.
        account: The user to run as. Only root may choose one.
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


def is_alive(pid: int, marker: str) -> bool:
    """Return whether the process runs and has `marker` in its command line."""
    child = _children.get(pid)
    if child is not None and child.poll() is not None:
        del _children[pid]
        return False
    try:
        process = psutil.Process(pid)
        try:
            command_line = " ".join(process.cmdline())
        except psutil.ZombieProcess:
            return process.num_threads() > 1
        if command_line:
            return marker in command_line
        return process.ppid() not in KERNEL_PIDS
    except psutil.Error:
        return False


def end_process(pid: int, marker: str, signal_number: signal.Signals, timeout: float) -> bool:
    """Send a signal, wait up to `timeout` seconds, and return whether the process has ended."""
    if not is_alive(pid, marker):
        return True
    try:
        os.kill(pid, signal_number)
    except ProcessLookupError:
        return True
    has_ended = wait_until(lambda: not is_alive(pid, marker), timeout)
    if has_ended and pid in _children:  # a child process has to be waited for
        _children.pop(pid).wait()
    return has_ended


def wait_until(condition: Callable[[], bool], timeout: float) -> bool:
    """Wait until the condition holds. Returns False after `timeout` seconds."""
    began = time.monotonic()
    while not condition():
        elapsed = time.monotonic() - began
        if elapsed > timeout:
            return False
        time.sleep(min(max(elapsed / 10, 0.01), 0.1))
    return True


def choose_free_ports(preferred: Sequence[int | None]) -> list[int]:
    """Choose different free TCP ports on the loopback address.

    Returns one port for each entry: the preferred port if it is free, or else a random one.
    """
    with ExitStack() as sockets:
        return [_bind_port(sockets, port) for port in preferred]


def _bind_port(sockets: ExitStack, preferred: int | None) -> int:
    """Bind a socket to the preferred port, or else to a random one, and return the port.

    The socket is closed together with `sockets`.
    """
    for port in ([] if preferred is None else [preferred]) + random.sample(PORT_RANGE, 100):
        probe = sockets.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            continue
        return port
    raise EmbeddedError(f"no free TCP port on {HOST}")


def is_listening(pid: int, ports: Iterable[int]) -> bool:
    """Return whether the process listens on all of these TCP ports.

    A successful connection would not prove this, because another process may listen there.
    """
    try:
        connections = psutil.Process(pid).net_connections("tcp")
    except psutil.Error:
        return False
    listening = {
        connection.laddr.port
        for connection in connections
        if connection.status == psutil.CONN_LISTEN
    }
    return listening.issuperset(ports)


def read_tail(path: Path, offset: int = 0, lines: int = 15) -> str:
    """Return the last lines of a log after a byte offset, for an error message."""
    if not path.exists():
        return ""
    with path.open("rb") as handle:
        handle.seek(offset)
        text = handle.read().decode("utf-8", "replace")
    return "\n".join(text.splitlines()[-lines:])


def generate_password() -> str:
    """Generate a password that needs no quoting in a URI or a configuration file."""
    return secrets.token_urlsafe(24)


def replace_file(path: Path, text: str) -> None:
    """Replace a file in a folder of another user, and make that user the owner of the file."""
    write_private_file(path, text, path.parent.stat())
