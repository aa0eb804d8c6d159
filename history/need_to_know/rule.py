"""The rule that ANNALS_NEED_TO_KNOW names: imported, checked, and asked within a time limit.

RuleError   the setting names nothing that can be asked
"""

from __future__ import annotations

import inspect
import logging
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final, TypeAlias

from django.conf import settings
from django.db import connections
from django.utils.module_loading import import_string

from history import metrics
from history.exactjson import Json
from history.masking.reader import Caller

log = logging.getLogger(__name__)

SETTING: Final = "ANNALS_NEED_TO_KNOW"
# For all the applications of one question.
SECONDS: Final = 2.0
# Calls at a time. One that never ends keeps its place. Each may need a connection of the pool.
PLACES: Final[int] = settings.RULE_CALLS

_BY_RULE, _BY_ERROR = (metrics.NEED_TO_KNOW_REFUSALS.labels(each) for each in ("rule", "error"))


@dataclass(frozen=True, slots=True)
class Application:
    """What the rule decides about. document: the newest snapshot of the application in the store,
    not masked, with exact numbers (int, Decimal); None where the store has no document of it,
    nor the old service where one is asked."""

    id: str
    document: Json


# True: this reader may see this application and its children. Anything else: they may not.
Rule: TypeAlias = Callable[[Caller, Application], bool]


class RuleError(ValueError):
    """The rule cannot be used. The message says why."""


def given() -> Rule | None:
    """The rule of the settings; None where there is none. Raises RuleError."""
    path = settings.ANNALS.need_to_know
    return None if path is None else _load(path)


@cache
def _load(path: str) -> Rule:
    try:
        found = import_string(path)
    except Exception as error:
        raise RuleError(f"{path} cannot be imported: {error}") from None
    if not callable(found):
        raise RuleError(f"{path} is not a function")
    if inspect.iscoroutinefunction(found) or inspect.isgeneratorfunction(found):
        raise RuleError(f"{path} must be a plain function, neither async nor a generator")
    try:
        inspect.signature(found).bind(None, None)
    except TypeError:
        raise RuleError(f"{path} must take two arguments: the user and the application") from None
    rule: Rule = found
    return rule


@dataclass(slots=True)
class _Answers:
    """What the rule has said so far, by the application's id; failed: those at which it failed."""

    said: dict[str, bool] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Said:
    """Ids of applications. allowed: the rule opens them; failed: it failed, so they stay closed."""

    allowed: frozenset[str]
    failed: frozenset[str]


_places = threading.BoundedSemaphore(PLACES)


def opened(rule: Rule, user: Caller, applications: Sequence[Application]) -> Said:
    """Which of these the rule opens to the user, within SECONDS. One that it fails at, or does not
    answer about in time, stays closed; the log and a counter say so."""
    answers = _Answers()
    why = "did not answer in time"
    if _places.acquire(timeout=SECONDS):
        # A thread of its own: nothing else can leave a call that does not end.
        asking = threading.Thread(
            target=_ask, args=(rule, user, list(applications), answers), daemon=True
        )
        asking.start()
        asking.join(SECONDS)
    else:
        why = "is still at work for earlier requests"
    said, failed = dict(answers.said), dict(answers.failed)
    allowed, unsaid = set(), set()
    for each in applications:
        if each.id in said:
            if said[each.id]:
                allowed.add(each.id)
            else:
                _BY_RULE.inc()
        else:
            unsaid.add(each.id)
            _BY_ERROR.inc()
            log.error("%s %s: %s stays closed", SETTING, failed.get(each.id, why), each.id)
    return Said(frozenset(allowed), frozenset(unsaid))


def _ask(rule: Rule, user: Caller, applications: Sequence[Application], answers: _Answers) -> None:
    try:
        for each in applications:
            try:
                said = rule(user, each)
            except BaseException as error:
                answers.failed[each.id] = f"failed ({_place(error)})"
                continue
            if isinstance(said, bool):
                answers.said[each.id] = said
            else:
                answers.failed[each.id] = f"gave {type(said).__name__} and not True or False"
    finally:
        connections.close_all()  # this thread's own, if the rule has asked the database
        _places.release()


def _place(error: BaseException) -> str:
    """What was raised and where. Not its text, which may quote the document."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}"
