"""`python -m benchmarks start`: how long processes take to start, by part.

Processor time is what counts on a busy machine; the time on the clock includes what others take.
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

from benchmarks.harness import HOST, PROGRAM, Harness, cpu, harness, print_json, web
from history.entities import root

ROOT = root()

WAIT_S: Final = 120.0
READING: Final = re.compile(r"reading \d+ partitions")

# Seconds by part: on the clock since the process began, and of processors.
Times = dict[str, tuple[float, float]]


def run(rounds: int = 5, as_json: bool = False) -> int:
    """Measure and print the medians."""
    ours = ("annals", "annals.access", "history", "ingest")
    helps = sorted(f"{name} --help" for name, app in get_commands().items() if app in ours)
    found: dict[str, list[tuple[float, float]]] = {}
    with harness(1) as bench:
        for number in range(rounds):
            times = {f"annals {words}": _command(words) for words in ("--help", *helps)}
            times |= _web(bench)
            times |= _consumer(bench, f"bench-start-{number}")
            for part, each in times.items():
                found.setdefault(part, []).append(each)
    medians = {
        part: [round(statistics.median(column), 3) for column in zip(*each, strict=True)]
        for part, each in found.items()
    }
    if as_json:
        print_json("start", medians)
        return 0
    table = Table("", "seconds", "CPU seconds", title=f"start, medians of {rounds}")
    for part, (clock, used) in medians.items():
        table.add_row(part, f"{clock:.2f}", f"{used:.2f}")
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    return 0


def _command(words: str) -> tuple[float, float]:
    before, began = os.times(), time.perf_counter()
    subprocess.run(
        [sys.executable, str(PROGRAM), *words.split()],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    after = os.times()
    spent = after.children_user + after.children_system
    return time.perf_counter() - began, spent - before.children_user - before.children_system


def _web(bench: Harness) -> Times:
    """Until the first process answers, until it is ready for requests, and until the first page:
    pages import what only they need."""
    parts = {
        "web: answers": ("/healthz", 200),
        "web: ready": ("/readyz", 200),
        "web: first page": (f"/api/v1/history/{ROOT.name}/A1", 401),
    }
    began = time.perf_counter()
    times: Times = {}
    with web(bench.environment(), quiet=True) as (port, server):
        for part, (address, status) in parts.items():
            _until(lambda: _status(port, address) == status)  # noqa: B023 - used at once
            times[part] = time.perf_counter() - began, _cpu(server)
    return times


def _status(port: int, address: str) -> int:
    asked = http.client.HTTPConnection(HOST, port, timeout=WAIT_S)
    try:
        asked.request("GET", address)
        return asked.getresponse().status
    except OSError:
        return 0
    finally:
        asked.close()


def _consumer(bench: Harness, group: str) -> Times:
    """Until its modules are loaded and it has asked Kafka for its partitions, and until it reads
    them: what is between the two is the brokers'."""
    command = [sys.executable, str(PROGRAM), "consume", "--group", group]
    began = time.perf_counter()
    consumer = subprocess.Popen(
        command, env=bench.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        process = psutil.Process(consumer.pid)
        port = int(bench.broker.bootstrap_servers().rpartition(":")[2])
        _until(lambda: any(each.raddr and each.raddr.port == port
                           for each in process.net_connections("tcp")))  # fmt: skip
        times: Times = {"consume: asks Kafka": (time.perf_counter() - began, _cpu(process))}
        assert consumer.stderr is not None
        for line in consumer.stderr:
            if READING.search(line):
                break
        times["consume: reads"] = time.perf_counter() - began, _cpu(process)
        return times
    finally:
        consumer.send_signal(signal.SIGTERM)
        consumer.communicate(timeout=60)


def _until(there: Callable[[], bool]) -> None:
    """Raises RuntimeError after WAIT_S."""
    end = time.monotonic() + WAIT_S
    while not there():
        if time.monotonic() > end:
            raise RuntimeError("the process does not start")
        time.sleep(0.01)


def _cpu(process: psutil.Process) -> float:
    """Processor seconds of a process and its children."""
    return sum(map(cpu, (process, *process.children())))
