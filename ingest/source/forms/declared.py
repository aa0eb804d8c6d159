"""By topic, what reads its envelopes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from history.entities import BY_TOPIC, Entity
from history.failure.declared import of_declaration
from history.kinds import Envelope, EnvelopeForm
from ingest.source.envelope import Reader, Shape, ShapeError, Shapes
from ingest.source.forms.cloudevents import CloudEvents
from ingest.source.forms.debezium import Debezium
from ingest.source.forms.plain import Plain

PARENT = "productInstanceId"
_READERS: Mapping[EnvelopeForm, Callable[[Envelope], Reader]] = {
    EnvelopeForm.PLAIN: Plain,
    EnvelopeForm.CLOUDEVENTS: CloudEvents,
    EnvelopeForm.DEBEZIUM: Debezium,
}


def shapes(text: bytes) -> Shapes:
    """Those of the kinds, and declarations from JSON text: topics, each with the places of fields.
    Raises ShapeError."""
    try:
        declared = msgspec.json.decode(text, type=dict[str, dict[str, str]])
    except msgspec.MsgspecError as error:
        raise ShapeError(of_declaration(error, "JSON")) from None
    found = dict(DECLARED)
    for topic, places in declared.items():
        entity = BY_TOPIC.get(topic)
        if entity is None:
            raise ShapeError(f"no entity is declared for topic {topic!r}")
        if entity.envelope is not None:
            raise ShapeError(
                f"the envelope of topic {topic!r} is in the file of kinds already: remove one"
            )
        found[topic] = Shape({**_parent(entity), **places})
    return found


def _parent(entity: Entity) -> dict[str, str]:
    return {} if entity.parent in (None, PARENT) else {PARENT: str(entity.parent)}


def _reader(entity: Entity) -> Reader | None:
    """None for the contract's envelopes."""
    if entity.envelope is not None:
        return _READERS[entity.envelope.form](entity.envelope)
    parent = _parent(entity)
    return Shape(parent) if parent else None


DECLARED: Shapes = {
    topic: reader
    for entity in BY_TOPIC.values()
    if (reader := _reader(entity)) is not None
    for topic in entity.topics
}
