"""Need-to-know beyond roles: which applications a viewer may see.

The function that ANNALS_NEED_TO_KNOW names decides. Every application is asked about once in a
request, before anything of it, or of a child of it, is shown.

RuleError         the setting names nothing that can be asked
NeedToKnowError   the rule does not open an application to the reader
RuleFailedError   the rule failed at an application, which stays closed
"""

import inspect
import logging
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeAlias

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.utils.module_loading import import_string
from django.utils.translation import gettext as _

from history import metrics
from history.documents.exactjson import Json
from history.masking.viewer import Caller, Viewer

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
    """What the rule says of this application; None where it fails or says neither True nor
    False."""
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


REASON: Final = "need-to-know"
FAILED: Final = "need-to-know: the rule failed"
# Documents in memory at a time.
CHUNK: Final = 100


# Gives the newest snapshot of each of these applications, not masked; None where there is none.
# Without those of which that is not known now.
Documents: TypeAlias = Callable[[Collection[str]], Mapping[str, Json]]


class NeedToKnowError(PermissionDenied):
    """The application is open to some only, and the reader is not one of them."""


class RuleFailedError(RuntimeError):
    """Whether the reader may see the application is not known now."""


def applies(viewer: Viewer) -> bool:
    """Whether a rule decides what is read. It does in every request, and in no command."""
    return given() is not None and viewer.user is not None


def may_see(viewer: Viewer, applications: Collection[str], documents: Documents) -> set[str]:
    """Those of these applications that the viewer may see; for lists."""
    rule, user = given(), viewer.user
    if rule is None or user is None:
        return set(applications)
    unknown = sorted(set(applications) - viewer.decided.keys())
    for start in range(0, len(unknown), CHUNK):
        chunk = unknown[start : start + CHUNK]
        found = documents(chunk)
        for each in chunk:
            known = each in found
            said = allows(rule, user, Application(each, found[each])) if known else None
            viewer.decided[each] = said
    return {each for each in applications if viewer.decided[each]}


def undecided(viewer: Viewer) -> None:
    """What is said may be of any application. Raises RuleFailedError where a rule decides."""
    if applies(viewer):
        viewer.look.refused = FAILED
        text = _("who may open this application cannot be determined now; try again in a moment")
        raise RuleFailedError(text)


def permit(viewer: Viewer, applications: Iterable[str], documents: Documents) -> None:
    """Something of these applications is about to be shown. Raises NeedToKnowError unless the
    viewer may see all of them, RuleFailedError if that is not known."""
    wanted = set(applications)
    closed = wanted - may_see(viewer, wanted, documents)
    viewer.look.read(sorted(closed))  # the journal names what the attempt was about
    if any(viewer.decided[each] is False for each in closed):
        viewer.look.refused = REASON
        raise NeedToKnowError
    if closed:
        undecided(viewer)
