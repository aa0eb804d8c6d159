"""GET /api/v1/completeness: the ledger. It is here because history must not import ingest."""

from __future__ import annotations

from history.api import access, describe, examples
from history.api.answers import Answer
from history.api.call import Call, Question
from history.gaps import read as gaps
from ingest.completeness import losses
from ingest.completeness.figures import as_json, entries, faults


@describe.call(
    "completeness",
    "How complete the store is: what was read, stored, repeated, expired, quarantined, the lag, "
    "and the versions that never arrived.",
    describe.ZONE,
    data="Store",
    example=examples.STORE,
    missing=False,
)
class Completeness(Call):
    """GET completeness"""

    permission = access.READ_COMPLETENESS

    def answer(self, question: Question) -> Answer:  # noqa: ARG002
        found = entries()
        ledger = as_json(found, faults(found), losses.as_json(losses.losses(found)))
        return {**ledger, "gaps": gaps.totals().as_json()}
