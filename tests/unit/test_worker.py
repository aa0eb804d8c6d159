"""The thread for jobs that may wait for a server."""

from __future__ import annotations

from threading import Event

import pytest

from ingest.consumer.worker import Worker


def test_jobs_run_in_order_and_give_what_they_return_or_raise() -> None:
    worker, done = Worker("test"), []
    first = worker.submit(lambda: done.append(1))
    second = worker.submit(lambda: 1 // 0)
    third = worker.submit(lambda: (*done, 3))
    assert third.result(10) == (1, 3)
    assert first.result() is None
    with pytest.raises(ZeroDivisionError):
        second.result()
    assert worker.close(10)


def test_the_end_waits_for_what_was_submitted() -> None:
    worker, go = Worker("test"), Event()
    worker.submit(go.wait)
    last = worker.submit(lambda: "done")
    go.set()
    assert worker.close(10)
    assert last.result() == "done"


def test_the_end_cancels_what_has_not_begun_in_time() -> None:
    worker, begun, go = Worker("test"), Event(), Event()
    running = worker.submit(lambda: begun.set() or go.wait())
    waiting = worker.submit(lambda: "done")
    assert begun.wait(10)
    assert not worker.close(0)
    go.set()
    assert worker.close(10)
    assert running.result() is True
    assert waiting.cancelled()
