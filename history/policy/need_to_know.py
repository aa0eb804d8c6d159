"""Need-to-know: which applications a viewer may see, in addition to the permissions of the login.

The setting ANNALS_NEED_TO_KNOW names a function, the rule, that decides. Annals asks the rule
before it shows anything of an application or of its children. Within one request, Annals asks the
rule at most once about an application.

UnusableRuleError  The setting does not name a function that can be the rule.
NeedToKnowError    The rule does not let the viewer see an application.
RuleFailedError    The rule failed for an application, so the application stays closed.
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
from history.policy.masking.viewer import Caller, Viewer

log = logging.getLogger(__name__)

SETTING: Final = "ANNALS_NEED_TO_KNOW"

# How many snapshots are loaded and given to the rule at a time.
SNAPSHOTS_AT_ONCE: Final = 100

# What the access journal writes about a refused request.
REFUSED_BY_RULE: Final = "need-to-know"
REFUSED_BY_FAILURE: Final = "need-to-know: the rule failed"

# The counters of one metric: how often the rule refused an application, and how often it failed.
_refused_by_rule = metrics.NEED_TO_KNOW_REFUSALS.labels("rule")
_refused_by_failure = metrics.NEED_TO_KNOW_REFUSALS.labels("error")


@dataclass(frozen=True, slots=True)
class Application:
    """An application about which the rule decides."""

    id: str
    # the newest snapshot in the store, not masked, with exact numbers (int, Decimal); None if
    # neither the store nor the old service has one
    document: Json


# Returns True if the user may see the application and its children, otherwise False. With any other
# result the rule has failed.
NeedToKnowRule: TypeAlias = Callable[[Caller, Application], bool]

# Returns the newest snapshot of each application, not masked, or None for an application without
# a snapshot. Leaves out an application if its snapshot cannot be read now.
LoadSnapshots: TypeAlias = Callable[[Collection[str]], Mapping[str, Json]]


class UnusableRuleError(ValueError):
    """Raised if the setting names something that cannot be the rule. The message says why."""


class NeedToKnowError(PermissionDenied):
    """Raised if the rule does not let the viewer see the application."""


class RuleFailedError(RuntimeError):
    """Raised if the rule failed for an application, so that it is not known who may see it."""


def check_permitted(
    viewer: Viewer, applications: Iterable[str], load_snapshots: LoadSnapshots
) -> None:
    """Check that the viewer may see all these applications, before anything of them is shown.

    Raises:
        NeedToKnowError: The rule refuses at least one application.
        RuleFailedError: The rule fails for at least one application, and refuses none.
    """
    application_ids = set(applications)
    closed = application_ids - select_visible(viewer, application_ids, load_snapshots)
    viewer.access.note_read(sorted(closed))  # the journal names the refused applications, too
    if any(viewer.decided[application] is False for application in closed):
        viewer.access.refused = REFUSED_BY_RULE
        raise NeedToKnowError
    if closed:
        refuse_undecided(viewer)


def select_visible(
    viewer: Viewer, applications: Collection[str], load_snapshots: LoadSnapshots
) -> set[str]:
    """Return the subset of `applications` that the viewer may see, for example to shorten a list.

    If the rule fails for an application, that application is left out.
    """
    rule, user = load_rule(), viewer.user
    if rule is None or user is None:
        return set(applications)
    unknown = sorted(set(applications) - viewer.decided.keys())
    for start in range(0, len(unknown), SNAPSHOTS_AT_ONCE):
        chunk = unknown[start : start + SNAPSHOTS_AT_ONCE]
        snapshots_by_id = load_snapshots(chunk)
        for application in chunk:
            is_known = application in snapshots_by_id
            decision = (
                ask_rule(rule, user, Application(application, snapshots_by_id[application]))
                if is_known
                else None
            )
            viewer.decided[application] = decision
    return {application for application in applications if viewer.decided[application]}


def refuse_undecided(viewer: Viewer) -> None:
    """Raise an error if the need-to-know rule limits this viewer.

    Call it for an answer that contains something about which the rule has not decided.

    Raises:
        RuleFailedError: The rule limits what this viewer may see.
    """
    if is_rule_applied(viewer):
        viewer.access.refused = REFUSED_BY_FAILURE
        text = _("who may open this application cannot be determined now; try again in a moment")
        raise RuleFailedError(text)


def is_rule_applied(viewer: Viewer) -> bool:
    """Return whether the rule limits what this viewer may see.

    The rule, if there is one, limits the viewers of HTTP requests. A command on the host has a
    viewer without a login, who may see everything.
    """
    return load_rule() is not None and viewer.user is not None


def load_rule() -> NeedToKnowRule | None:
    """Return the rule that the setting names, or None if the setting is empty.

    Raises:
        UnusableRuleError: The setting does not name a function that can be the rule.
    """
    path = settings.ANNALS.need_to_know
    return None if path is None else _import_rule(path)


@cache
def _import_rule(path: str) -> NeedToKnowRule:
    try:
        imported = import_string(path)
    except Exception as error:
        raise UnusableRuleError(f"{path} cannot be imported: {error}") from None
    if not callable(imported):
        raise UnusableRuleError(f"{path} is not a function")
    if inspect.iscoroutinefunction(imported) or inspect.isgeneratorfunction(imported):
        raise UnusableRuleError(f"{path} must be a plain function, neither async nor a generator")
    try:
        inspect.signature(imported).bind(None, None)
    except TypeError:
        raise UnusableRuleError(
            f"{path} must take two arguments: the user and the application"
        ) from None
    rule: NeedToKnowRule = imported
    return rule


def ask_rule(rule: NeedToKnowRule, user: Caller, application: Application) -> bool | None:
    """Return the rule's decision on one application, or None if the rule fails.

    The rule also fails if it returns something other than True or False.
    """
    try:
        decision = rule(user, application)
    except Exception as error:
        problem = f"failed ({_locate_error(error)})"
    else:
        if isinstance(decision, bool):
            if not decision:
                _refused_by_rule.inc()
            return decision
        problem = f"returned {type(decision).__name__} instead of a bool"
    _refused_by_failure.inc()
    log.error("%s %s; application %s stays closed", SETTING, problem, application.id)
    return None


def _locate_error(error: BaseException) -> str:
    """Return the type of an error and where it was raised.

    The error's text is left out: it may quote the snapshot.
    """
    frames = traceback.extract_tb(error.__traceback__)
    location = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{location}"
