"""The inbox handlers of the test service. Each message says what its handler must do."""

import os
import signal
import time

from django.db import connection

from outbox import inbox
from tests.outbox.shop.models import Effect

EVENTS, TWIN, SKIPPED = "shop.events", "shop.events.migration", "shop.skipped"


class HandlerError(Exception):
    """Raised by a handler if the message asks for it."""


def follow_instructions(handler: str, message: inbox.Message) -> None:
    """Store an effect, and then do what the field `do` of the message says."""
    instructions = message.json()
    key = (message.key or b"").decode(errors="replace")
    if not isinstance(instructions, dict):
        raise inbox.Reject(f"not an object: {instructions!r}")
    Effect.objects.create(handler=handler, key=key, n=instructions.get("n", 0))
    if message.attempt > instructions.get("times", 10**9):
        return
    match instructions.get("do"):
        case "raise":
            raise HandlerError(instructions.get("text", "as asked"))
        case "reject":
            raise inbox.Reject(instructions["text"])
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
            time.sleep(instructions["seconds"])


@inbox.handler(EVENTS, name="shop")
def handle_event(message: inbox.Message) -> None:
    follow_instructions("shop", message)


@inbox.handler(SKIPPED, name="skipping", attempts=2, seconds=0.5, stop_key=False)
def handle_skipped(message: inbox.Message) -> None:
    follow_instructions("skipping", message)


@inbox.handler(
    SKIPPED, TWIN, name="own key", key=lambda message: f"{message.key!r} {message.json()['n']}"
)
def handle_with_own_key(message: inbox.Message) -> None:
    follow_instructions("own key", message)
