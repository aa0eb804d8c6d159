"""Compares what a process gives with the registers of metrics."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import Metric

from history.metric import OpenValues, Register, Values


def faults(families: Iterable[Metric], registers: Iterable[Register]) -> Iterator[str]:
    """What is wrong with families of ours that a process gave: in no register, or with other
    labels or values of labels than the register says. Empty families are right."""
    known = {name: metric for each in registers for name, metric in each.described.items()}
    for family in families:
        if not family.name.startswith("annals_"):
            continue
        name = f"{family.name}_total" if family.type == "counter" else family.name
        described = known.get(name)
        if described is None or described.kind != family.type:
            yield f"{name}: no {family.type} of a register"
            continue
        for sample in family.samples:
            labels = {key: value for key, value in sample.labels.items() if key != "le"}
            if set(labels) != set(described.labels):
                yield f"{name}: has the labels {sorted(labels)}"
            else:
                yield from (
                    f"{name}: the label {key} has the value {value!r}"
                    for key, value in labels.items()
                    if not _allowed(described.labels[key], value)
                )


def _allowed(values: Values, value: str) -> bool:
    return isinstance(values, OpenValues) or value in values
