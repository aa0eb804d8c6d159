"""GET /api/v1/completeness: the ledger. It is here because history must not import ingest."""

from __future__ import annotations

from history import complete_to
from history.api import access, answers, describe, examples
from history.api.answers import Answer
from history.api.parameters import Parameters
from history.api.views import Call, plain
from history.entities import ENTITIES
from ingest.completeness.figures import as_json, entries, faults


@describe.call(
    "completeness",
    "How complete the store is: what was read, stored, repeated, expired, quarantined, the lag.",
    describe.ZONE,
    data="Store",
    example=examples.STORE,
    missing=False,
)
class Completeness(Call):
    """GET completeness"""

    permission = access.READ_COMPLETENESS

    def answer(self, parameters: Parameters, **place: str) -> Answer:  # noqa: ARG002
        form = plain(parameters)
        parameters.finish()
        found = entries()
        state = answers.completeness(complete_to.read(ENTITIES), form)
        return {"completeness": state, **as_json(found, faults(found))}
