"""The rule that ANNALS_NEED_TO_KNOW names: imported, checked, and called.

RuleError   the setting names nothing that can be asked
"""

from __future__ import annotations

import inspect
import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeAlias

from django.conf import settings
from django.utils.module_loading import import_string

from history import metrics
from history.exactjson import Json
from history.masking.reader import Caller

log = logging.getLogger(__name__)

SETTING: Final = "ANNALS_NEED_TO_KNOW"

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


def allows(rule: Rule, user: Caller, application: Application) -> bool | None:
    """What the rule says of this application; None where it fails or says neither True nor False.
    The log and a counter say so."""
    try:
        said = rule(user, application)
    except Exception as error:
        why = f"failed ({_place(error)})"
    else:
        if isinstance(said, bool):
            if not said:
                _BY_RULE.inc()
            return said
        why = f"gave {type(said).__name__} and not True or False"
    _BY_ERROR.inc()
    log.error("%s %s: %s stays closed", SETTING, why, application.id)
    return None


def _place(error: BaseException) -> str:
    """What was raised and where. Not its text, which may quote the document."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}"
