"""`python -m benchmarks against DIR`: compares two checkouts by the processor time of API requests.

DIR usually has an earlier commit (`git worktree add DIR COMMIT`). That checkout and this checkout
answer the same requests from one database, in turn, each in its own process. Only processor time is
measured, so that other programs have little influence.
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
from benchmarks.timeline_data import BIG, TimelineData, prepare_data
from history.kinds.entities import get_root

ROOT_FOLDER = Path(__file__).resolve().parents[1]
DAYS, ROWS = 90, 100_000
QUESTIONS_A_ROUND = 40  # how many requests of most kinds a round has
# The program that a checkout runs. It uses only what every release has: Django's test client and
# the addresses of the API.
_QUESTION_PROGRAM = """
import json, sys, time
import django
django.setup()
from django.contrib.auth.models import User
from django.test import Client
client = Client(HTTP_HOST="localhost")
client.force_login(User.objects.get(username="auditor"))
milliseconds = {}
for name, addresses in json.load(sys.stdin).items():
    for timed in (False, True):
        began = time.process_time()
        for address in addresses:
            answer = client.get(address)
            assert answer.status_code == 200, (address, answer.status_code, answer.content[:200])
        milliseconds[name] = (time.process_time() - began) * 1000 / len(addresses)
json.dump(milliseconds, sys.stdout)
"""


def run(directory: str, rounds: int = 5, as_json: bool = False) -> int:
    """Compare the processor time of API requests in this checkout and in a second one.

    The printed times are medians over all rounds, in milliseconds for a request.

    Args:
        directory: The folder of the second checkout, usually of an earlier commit.
        rounds: How many times each checkout answers all requests.
    """
    print_progress = Console(stderr=True).print
    data = prepare_data(str(settings.ANNALS.database_url), DAYS, ROWS, print_progress)
    trees = {"before": Path(directory).resolve(), "now": ROOT_FOLDER}
    times: dict[str, dict[str, list[float]]] = {}
    for number in range(rounds):
        print_progress(f"round {number + 1} of {rounds} ...")
        for tree, path in trees.items():
            for question, milliseconds in _measure_tree(path, data).items():
                times.setdefault(question, {}).setdefault(tree, []).append(milliseconds)
    figures: dict[str, Any] = {}
    for question, times_by_tree in times.items():
        ratios = [
            now / before
            for now, before in zip(times_by_tree["now"], times_by_tree["before"], strict=True)
        ]
        figures[question] = {
            tree: round(statistics.median(times_by_tree[tree]), 2) for tree in trees
        }
        figures[question]["ratio"] = round(statistics.median(ratios), 2)
    if as_json:
        print_json("against", figures)
        return 0
    table = Table("CPU ms of a request", "before", "now", "ratio", title=f"medians of {rounds}")
    for question, times_by_tree in figures.items():
        table.add_row(question, *(str(times_by_tree[name]) for name in ("before", "now", "ratio")))
    Console().print(table)
    return 0


def _list_questions(data: TimelineData) -> dict[str, list[str]]:
    """Return the URLs to request, by kind of request."""
    history = f"/api/v1/history/{get_root().name}"
    hot = [data.hot[number % len(data.hot)] for number in range(QUESTIONS_A_ROUND)]
    usual = list(data.usual[:QUESTIONS_A_ROUND])
    return {
        "page of 1": [f"{history}/{id}?pageSize=1" for id in hot],
        "page of 50": [f"{history}/{id}?pageSize=50" for id in hot],
        "version": [f"{history}/{id}/versions/60" for id in hot],
        "application": [f"/api/v1/applications/{id}/history" for id in usual],
        "blame of 120 versions": [f"{history}/{id}/blame" for id in hot[:10]],
        "blame of 10,000 versions": [f"{history}/{BIG}/blame"],
    }


def _measure_tree(tree: Path, data: TimelineData) -> dict[str, float]:
    """Return, by kind of request, the CPU milliseconds of a request with the code in `tree`."""
    environment = {
        **data.make_environment(),
        "DJANGO_SETTINGS_MODULE": "annals.settings",
        "PYTHONPATH": str(tree),
        "ANNALS_LOG_LEVEL": "ERROR",
    }
    environment.pop("ANNALS_ENTITIES_FILE", None)
    finished = subprocess.run(
        [sys.executable, "-c", _QUESTION_PROGRAM],
        cwd=tree,
        env=environment,
        input=json.dumps(_list_questions(data)),
        check=True,
        capture_output=True,
        text=True,
    )
    milliseconds: dict[str, float] = json.loads(finished.stdout.splitlines()[-1])
    return milliseconds
