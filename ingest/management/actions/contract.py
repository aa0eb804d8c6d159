"""What `annals contract` does."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from history.entities import BY_NAME
from ingest.contract import schema
from ingest.contract.page import text


def run(base: BaseCommand, /, **options: Any) -> None:
    """Print one document as JSON."""
    if options["command"] == "asyncapi":
        found = schema.document()
    elif options["entity"]:
        entity = BY_NAME[options["entity"]]
        if entity.envelope is not None:
            base.stderr.write(
                f"{entity.name} declares an envelope: its messages look otherwise. This is the "
                "contract's own envelope. See docs/kinds.md."
            )
        found = schema.of_entity(entity)
    else:
        found = schema.of_all()
    base.stdout.write(text(found), ending="")
