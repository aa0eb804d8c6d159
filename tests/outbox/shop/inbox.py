"""The handlers of the service. What a message does stands in the message itself."""

import os
import signal
import time

from django.db import connection

from outbox import inbox
from tests.outbox.shop.models import Effect

EVENTS, TWIN, SKIPPED = "shop.events", "shop.events.migration", "shop.skipped"


class Failure(Exception):
    """What a handler raises."""


def act(handler: str, message: inbox.Message) -> None:
    given = message.json()
    key = (message.key or b"").decode(errors="replace")
    if not isinstance(given, dict):
        raise inbox.Reject(f"not an object: {given!r}")
    Effect.objects.create(handler=handler, key=key, n=given.get("n", 0))
    if message.attempt > given.get("times", 10**9):
        return
    match given.get("do"):
        case "raise":
            raise Failure(given.get("text", "as asked"))
        case "reject":
            raise inbox.Reject(given["text"])
        case "exit":
            raise SystemExit(3)
        case "hang":
            time.sleep(60)
        case "query":
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_sleep(60)")
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "cut":
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        case "sleep":
            time.sleep(given["seconds"])


@inbox.handler(EVENTS, name="shop")
def event(message: inbox.Message) -> None:
    act("shop", message)


@inbox.handler(SKIPPED, name="skipping", attempts=2, seconds=0.5, stop_key=False)
def skipping(message: inbox.Message) -> None:
    act("skipping", message)


@inbox.handler(
    SKIPPED, TWIN, name="own key", key=lambda message: f"{message.key!r} {message.json()['n']}"
)
def own_key(message: inbox.Message) -> None:
    act("own key", message)
