"""Metrics of the versions that never arrived, as the latest `annals gaps` knows them."""

from collections.abc import Iterator

from prometheus_client.core import Metric

from annals import metrics
from history.gaps import read
from history.gaps.run import latest
from history.metric import single


def gaps() -> Iterator[Metric]:
    """By kind and service: MOST_CLIENTS services have a label of their own, the others are
    `other`. No metrics before the first run."""
    run = latest()
    if run is None:
        return
    versions, count = metrics.GAP_VERSIONS(), metrics.GAPS()
    for each in read.sums():
        place = [each.entity, each.client_id]
        versions.add_metric(place, each.versions)
        count.add_metric(place, each.gaps)
    yield from (versions, count)
    yield single(metrics.GAPS_QUARANTINED, run.quarantined)
    yield single(metrics.GAPS_STARTED, run.started_at.timestamp())
    yield single(metrics.GAPS_SECONDS, run.seconds)
    yield from _sources()


def _sources() -> Iterator[Metric]:
    asked, recovered = metrics.GAPS_ASKED(), metrics.GAPS_RECOVERED()
    refused, unanswerable = metrics.GAPS_REFUSED(), metrics.GAPS_UNANSWERABLE()
    failures, answered = metrics.GAPS_SOURCE_FAILURES(), metrics.GAPS_SOURCE_ANSWERED()
    for each in read.sources():
        place = [each.name]
        asked.add_metric(place, each.asked)
        recovered.add_metric(place, each.recovered)
        refused.add_metric(place, each.refused)
        unanswerable.add_metric(place, each.unanswerable)
        failures.add_metric(place, each.attempts)
        if each.answered_at is not None:
            answered.add_metric(place, each.answered_at.timestamp())
    yield from (asked, recovered, refused, unanswerable, failures, answered)
