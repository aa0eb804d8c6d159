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
from history.policy.masking.viewer import Caller, Viewer

log = logging.getLogger(__name__)

SETTING: Final = "ANNALS_NEED_TO_KNOW"

_BY_RULE, _BY_ERROR = (
    metrics.NEED_TO_KNOW_REFUSALS.labels(outcome) for outcome in ("rule", "error")
)


@dataclass(frozen=True, slots=True)
class Application:
    """An application about which the rule decides.

    `document` is its newest snapshot in the store, not masked, with exact numbers (int, Decimal).
    It is None if neither the store nor the old service has one.
    """

    id: str
    document: Json


# True: this reader may see this application and its children. Anything else: they may not.
NeedToKnowRule: TypeAlias = Callable[[Caller, Application], bool]


class UnusableRuleError(ValueError):
    """The rule cannot be used. The message says why."""


def load_rule() -> NeedToKnowRule | None:
    """Load the rule of the settings; None if there is none.

    Raises:
        UnusableRuleError: The setting names nothing that can be asked.
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
    """Ask the rule about one application; None if it fails, or gives neither True nor False."""
    try:
        decision = rule(user, application)
    except Exception as error:
        problem = f"failed ({_locate_error(error)})"
    else:
        if isinstance(decision, bool):
            if not decision:
                _BY_RULE.inc()
            return decision
        problem = f"gave {type(decision).__name__} and not True or False"
    _BY_ERROR.inc()
    log.error("%s %s: %s stays closed", SETTING, problem, application.id)
    return None


def _locate_error(error: BaseException) -> str:
    """Return what was raised and where, without its text: that may quote the document."""
    frames = traceback.extract_tb(error.__traceback__)
    location = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{location}"


REFUSED_BY_RULE: Final = "need-to-know"
REFUSED_BY_FAILURE: Final = "need-to-know: the rule failed"
# Documents in memory at a time.
DOCUMENTS_AT_ONCE: Final = 100


# Gives the newest snapshot of each of these applications, not masked; None where there is none.
# Without those of which that is not known now.
LoadDocuments: TypeAlias = Callable[[Collection[str]], Mapping[str, Json]]


class NeedToKnowError(PermissionDenied):
    """The application is open only to some, and the viewer is not one of them."""


class RuleFailedError(RuntimeError):
    """Whether the viewer may see the application is not known now."""


def is_rule_applied(viewer: Viewer) -> bool:
    """Return whether a rule decides what is read: in every request, and in no command."""
    return load_rule() is not None and viewer.user is not None


def select_visible(
    viewer: Viewer, applications: Collection[str], load_documents: LoadDocuments
) -> set[str]:
    """Return those of the applications that the viewer may see. For lists."""
    rule, user = load_rule(), viewer.user
    if rule is None or user is None:
        return set(applications)
    unknown = sorted(set(applications) - viewer.decided.keys())
    for start in range(0, len(unknown), DOCUMENTS_AT_ONCE):
        chunk = unknown[start : start + DOCUMENTS_AT_ONCE]
        documents_by_id = load_documents(chunk)
        for application in chunk:
            is_known = application in documents_by_id
            decision = (
                ask_rule(rule, user, Application(application, documents_by_id[application]))
                if is_known
                else None
            )
            viewer.decided[application] = decision
    return {application for application in applications if viewer.decided[application]}


def refuse_undecided(viewer: Viewer) -> None:
    """Refuse an answer that may be about any application, if a rule decides.

    Raises:
        RuleFailedError: A rule decides what this viewer reads.
    """
    if is_rule_applied(viewer):
        viewer.access.refused = REFUSED_BY_FAILURE
        text = _("who may open this application cannot be determined now; try again in a moment")
        raise RuleFailedError(text)


def check_permitted(
    viewer: Viewer, applications: Iterable[str], load_documents: LoadDocuments
) -> None:
    """Check that the viewer may see all of these applications, before anything of them is shown.

    Raises:
        NeedToKnowError: One of them is closed to the viewer.
        RuleFailedError: Whether one of them is open is not known.
    """
    application_ids = set(applications)
    closed = application_ids - select_visible(viewer, application_ids, load_documents)
    viewer.access.note_read(sorted(closed))  # the journal names what the attempt was about
    if any(viewer.decided[application] is False for application in closed):
        viewer.access.refused = REFUSED_BY_RULE
        raise NeedToKnowError
    if closed:
        refuse_undecided(viewer)
