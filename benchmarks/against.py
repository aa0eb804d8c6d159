"""`python -m benchmarks against DIR`: processor time of reading, here and in another checkout.

The other checkout is an earlier commit (`git worktree add DIR COMMIT`). Both answer the same
questions of the API in a process of their own, in turns, from one database; only processor time
counts, so that other programs disturb little.
"""

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from django.conf import settings
from rich.console import Console
from rich.table import Table

from benchmarks.harness import print_json
from benchmarks.timeline_data import BIG, DataSet, data_set
from history.entities import root

HERE = Path(__file__).resolve().parents[1]
DAYS, ROWS = 90, 100_000
ENOUGH = 40  # requests of each question in a round
# Only what each release has: Django's test client, and the addresses of the API.
_ASK = """
import json, sys, time
import django
django.setup()
from django.contrib.auth.models import User
from django.test import Client
client = Client(HTTP_HOST="localhost")
client.force_login(User.objects.get(username="auditor"))
found = {}
for name, addresses in json.load(sys.stdin).items():
    for timed in (False, True):
        began = time.process_time()
        for address in addresses:
            answer = client.get(address)
            assert answer.status_code == 200, (address, answer.status_code, answer.content[:200])
        found[name] = (time.process_time() - began) * 1000 / len(addresses)
json.dump(found, sys.stdout)
"""


def run(directory: str, rounds: int = 5, as_json: bool = False) -> int:
    """Measure and print milliseconds of a processor for a request, medians of the rounds."""
    say = Console(stderr=True).print
    stored = data_set(str(settings.ANNALS.database_url), DAYS, ROWS, say)
    trees = {"before": Path(directory).resolve(), "now": HERE}
    found: dict[str, dict[str, list[float]]] = {}
    for number in range(rounds):
        say(f"round {number + 1} of {rounds} ...")
        for tree, path in trees.items():
            for question, taken in _ask(path, stored).items():
                found.setdefault(question, {}).setdefault(tree, []).append(taken)
    figures: dict[str, Any] = {}
    for question, its in found.items():
        ratios = [now / before for now, before in zip(its["now"], its["before"], strict=True)]
        figures[question] = {tree: round(statistics.median(its[tree]), 2) for tree in trees}
        figures[question]["ratio"] = round(statistics.median(ratios), 2)
    if as_json:
        print_json("against", figures)
        return 0
    table = Table("CPU ms of a request", "before", "now", "ratio", title=f"medians of {rounds}")
    for question, its in figures.items():
        table.add_row(question, *(str(its[name]) for name in ("before", "now", "ratio")))
    Console().print(table)
    return 0


def _questions(stored: DataSet) -> dict[str, list[str]]:
    """The addresses of each question."""
    history = f"/api/v1/history/{root().name}"
    hot = [stored.hot[number % len(stored.hot)] for number in range(ENOUGH)]
    usual = list(stored.usual[:ENOUGH])
    return {
        "page of 1": [f"{history}/{id}?pageSize=1" for id in hot],
        "page of 50": [f"{history}/{id}?pageSize=50" for id in hot],
        "version": [f"{history}/{id}/versions/60" for id in hot],
        "application": [f"/api/v1/applications/{id}/history" for id in usual],
        "blame of 120 versions": [f"{history}/{id}/blame" for id in hot[:10]],
        "blame of 10,000 versions": [f"{history}/{BIG}/blame"],
    }


def _ask(tree: Path, stored: DataSet) -> dict[str, float]:
    environment = {
        **stored.environment(),
        "DJANGO_SETTINGS_MODULE": "annals.settings",
        "PYTHONPATH": str(tree),
        "ANNALS_LOG_LEVEL": "ERROR",
    }
    environment.pop("ANNALS_ENTITIES_FILE", None)
    done = subprocess.run(
        [sys.executable, "-c", _ASK],
        cwd=tree,
        env=environment,
        input=json.dumps(_questions(stored)),
        check=True,
        capture_output=True,
        text=True,
    )
    answers: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answers
