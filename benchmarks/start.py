"""`python -m benchmarks start`: measures how long commands, web server and consumer take to start.

On a busy machine, compare the processor time: the elapsed time depends on other processes.
"""

import http.client
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final

import psutil
from django.core.management import get_commands
from rich.console import Console
from rich.table import Table

from benchmarks.harness import (
    HOST,
    PROGRAM,
    Harness,
    measure_cpu,
    print_json,
    start_harness,
    start_web,
)
from history.kinds.entities import get_root

ROOT = get_root()

WAIT_S: Final = 120.0
READING_LINE: Final = re.compile(r"reading \d+ partitions")

# By the name of a part of the start: the seconds from the start of the process to the end of this
# part, and the processor seconds until then.
TimesByPart = dict[str, tuple[float, float]]


def run(rounds: int = 5, as_json: bool = False) -> int:
    """Start each process `rounds` times, print the median times, and return the exit code."""
    our_apps = ("annals", "annals.access", "history", "ingest")
    helps = sorted(f"{name} --help" for name, app in get_commands().items() if app in our_apps)
    times_by_part: dict[str, list[tuple[float, float]]] = {}
    with start_harness(1) as bench:
        for number in range(rounds):
            times = {f"annals {words}": _time_command(words) for words in ("--help", *helps)}
            times |= _time_web(bench)
            times |= _time_consumer(bench, f"bench-start-{number}")
            for part, part_times in times.items():
                times_by_part.setdefault(part, []).append(part_times)
    medians = {
        part: [round(statistics.median(column), 3) for column in zip(*part_times, strict=True)]
        for part, part_times in times_by_part.items()
    }
    if as_json:
        print_json("start", medians)
        return 0
    table = Table("", "seconds", "CPU seconds", title=f"start, medians of {rounds}")
    for part, (clock, cpu_seconds) in medians.items():
        table.add_row(part, f"{clock:.2f}", f"{cpu_seconds:.2f}")
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    return 0


def _time_command(arguments: str) -> tuple[float, float]:
    earlier, began = os.times(), time.perf_counter()
    subprocess.run(
        [sys.executable, str(PROGRAM), *arguments.split()],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    after = os.times()
    cpu_seconds = after.children_user + after.children_system
    return (
        time.perf_counter() - began,
        cpu_seconds - earlier.children_user - earlier.children_system,
    )


def _time_web(bench: Harness) -> TimesByPart:
    """Measure how long the web server takes to answer, to be ready, and to serve a first page.

    The first page takes longer than the first answer, because pages import further modules.
    """
    parts = {
        "web: answers": ("/healthz", 200),
        "web: ready": ("/readyz", 200),
        "web: first page": (f"/api/v1/history/{ROOT.name}/A1", 401),
    }
    began = time.perf_counter()
    times: TimesByPart = {}
    with start_web(bench.make_environment(), quiet=True) as (port, server):
        for part, (address, status) in parts.items():
            _wait_until(lambda: _fetch_status(port, address) == status, part)  # noqa: B023 - used at once
            times[part] = time.perf_counter() - began, _measure_cpu(server)
    return times


def _fetch_status(port: int, address: str) -> int:
    connection = http.client.HTTPConnection(HOST, port, timeout=WAIT_S)
    try:
        connection.request("GET", address)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def _time_consumer(bench: Harness, group: str) -> TimesByPart:
    """Measure the start of a consumer until it connects to Kafka, and until it reads partitions.

    Between these two moments, the consumer waits mostly for the brokers.
    """
    command = [sys.executable, str(PROGRAM), "consume", "--group", group]
    began = time.perf_counter()
    consumer = subprocess.Popen(
        command,
        env=bench.make_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        process = psutil.Process(consumer.pid)
        port = int(bench.broker.get_bootstrap_servers().rpartition(":")[2])
        _wait_until(
            lambda: any(
                socket.raddr and socket.raddr.port == port
                for socket in process.net_connections("tcp")
            ),
            "consume: asks Kafka",
        )
        times: TimesByPart = {
            "consume: asks Kafka": (time.perf_counter() - began, _measure_cpu(process))
        }
        assert consumer.stderr is not None
        for line in consumer.stderr:
            if READING_LINE.search(line):
                break
        times["consume: reads"] = time.perf_counter() - began, _measure_cpu(process)
        return times
    finally:
        consumer.send_signal(signal.SIGTERM)
        consumer.communicate(timeout=60)


def _wait_until(condition: Callable[[], bool], part: str) -> None:
    """Wait until the condition holds.

    Args:
        part: The text that names the condition in the error, for example "web: ready".

    Raises:
        RuntimeError: The condition does not hold after WAIT_S.
    """
    end = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"'{part}' did not happen within {WAIT_S:g} s")
        time.sleep(0.01)


def _measure_cpu(process: psutil.Process) -> float:
    """Return the processor seconds of a process and its children."""
    return sum(map(measure_cpu, (process, *process.children())))
