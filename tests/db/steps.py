"""Steps of a test that run in a separate process, so that the test can set environment variables.

`python -m tests.db.steps` reads a JSON list of steps and prints a JSON list of their results:
["command", WORD..]: exit code and output
["api", ADDRESS]: status and answer, for the demo login support
["page", ADDRESS]: status and text, for the demo login admin
["ingest", TOPIC, VALUE..]: the counts of the ledger; a value is a JSON text, null, or [value,
headers]
["sql", TEXT]: the rows
"""

import base64
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

Step = Sequence[Any]


def run_steps(env: Mapping[str, str], *steps: Step) -> list[Any]:
    """Run the steps in a process with this environment, and return their results."""
    finished = subprocess.run(
        [sys.executable, "-m", "tests.db.steps"],
        cwd=ROOT,
        env=dict(env),
        input=json.dumps(steps),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stderr
    results: list[Any] = json.loads(finished.stdout.splitlines()[-1])
    return results


def _command(*words: str) -> tuple[int, str]:
    from django.core.management import CommandError, call_command

    output, errors = StringIO(), StringIO()
    try:
        with redirect_stdout(output):
            call_command(*words, stdout=output, stderr=errors)
    except SystemExit as ended:
        return int(ended.code or 0), output.getvalue() or errors.getvalue()
    except CommandError as error:
        return error.returncode, str(error)
    return 0, output.getvalue() or errors.getvalue()


def _api(address: str) -> tuple[int, Any]:
    from django.test import Client

    word = "Basic " + base64.b64encode(b"support:support").decode()
    answer = Client().get(address, HTTP_AUTHORIZATION=word, HTTP_ACCEPT_LANGUAGE="en")
    return answer.status_code, json.loads(answer.content)


def _page(address: str) -> tuple[int, str]:
    from django.test import Client

    client = Client(headers={"accept-language": "en"})
    name = "admin"  # a demo login: its password equals its name
    assert client.login(username=name, password=name)
    answer = client.get(address, follow=True)
    text = b"".join(answer) if answer.streaming else answer.content
    return answer.status_code, text.decode()


def _ingest(topic: str, *values: Any) -> dict[str, Any]:
    from history.store.days.window import Window
    from ingest.messages.decode import decode_message
    from ingest.messages.message import KafkaMessage, TopicPartition
    from ingest.store import ledger
    from ingest.store.batch import Batch, Limits
    from ingest.store.session import open_connection
    from ingest.store.transaction import BatchWriter

    source, window = TopicPartition(topic, "id", 0), Window.at(datetime.now(UTC), 90, 14)
    with open_connection() as connection:
        claim = ledger.claim_partition(connection, source, 0)
        row = connection.execute(
            "SELECT next_offset FROM ingest_ledger WHERE topic = %s", [topic]
        ).fetchone()
    offset = row[0] if row else 0
    batch = Batch(Limits(10_000, 1 << 30))
    for number, value in enumerate(values, offset):
        body, headers = value if isinstance(value, list) else (value, {})
        pairs = tuple((name, text.encode()) for name, text in headers.items())
        raw = None if body is None else body.encode()
        sent = KafkaMessage(topic, 0, number, 0, b"key", raw, pairs)
        batch.add(decode_message(sent, window), source, number)
    writer = BatchWriter(open_connection)
    writer.write(batch, {source: claim}, {})
    writer.close()
    with open_connection() as connection:
        row = connection.execute(
            "SELECT read, stored, repeated, expired, quarantined FROM ingest_ledger"
            " WHERE topic = %s",
            [topic],
        ).fetchone()
    assert row is not None
    return dict(zip(("read", "stored", "repeated", "expired", "quarantined"), row, strict=True))


def _sql(text: str) -> list[Any]:
    from ingest.store.session import open_connection

    with open_connection() as connection:
        return connection.execute(text).fetchall()


STEPS = {"command": _command, "api": _api, "page": _page, "ingest": _ingest, "sql": _sql}


if __name__ == "__main__":
    import django

    django.setup()
    results = [STEPS[name](*args) for name, *args in json.load(sys.stdin)]
    print(json.dumps(results, default=str))
