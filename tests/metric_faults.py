"""Compares the metrics of a process with the declared metrics."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import Metric

from history.common.metric import MetricRegister, OpenValues, Values


def find_metric_faults(
    families: Iterable[Metric], registers: Iterable[MetricRegister]
) -> Iterator[str]:
    """Yield a sentence for each metric of Annals that differs from the registers.

    A metric differs if no register has it, or if a sample has different labels or label values. A
    metric without samples is not reported for its labels.
    """
    metric_by_name = {
        name: metric for register in registers for name, metric in register.descriptions.items()
    }
    for family in families:
        if not family.name.startswith("annals_"):
            continue
        name = f"{family.name}_total" if family.type == "counter" else family.name
        described = metric_by_name.get(name)
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
                    if not _is_allowed(described.labels[key], value)
                )


def _is_allowed(values: Values, value: str) -> bool:
    return isinstance(values, OpenValues) or value in values
