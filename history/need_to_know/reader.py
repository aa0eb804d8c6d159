"""Who reads, and what they may see: every application is asked about once in a request, before
anything of it, or of a child of it, is shown.

NeedToKnowError   the rule does not open an application to the reader
RuleFailedError   the rule failed at an application, which stays closed
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

from django.core.exceptions import PermissionDenied
from django.utils.translation import gettext as _

from history import looks, masking
from history.exactjson import Json
from history.masking.reader import Caller
from history.need_to_know import rule as rules
from history.need_to_know.rule import Application, Rule

REASON: Final = "need-to-know"
FAILED: Final = "need-to-know: the rule failed"
# Documents in memory at a time.
CHUNK: Final = 100


class Unknown(Enum):
    """In the place of a document of which nobody knows now what it is, or whether there is one."""

    NOW = "unknown now"


# Gives the newest snapshot of each of these applications, not masked.
Documents: TypeAlias = Callable[[Collection[str]], "Mapping[str, Json | Unknown]"]


class NeedToKnowError(PermissionDenied):
    """The application is open to some only, and the reader is not one of them."""

    def __init__(self) -> None:
        super().__init__(
            _("this application is open only to those who work on it; the attempt is recorded")
        )


class RuleFailedError(RuntimeError):
    """Whether the reader may see the application is not known now."""

    def __init__(self) -> None:
        super().__init__(
            _("who may open this application cannot be determined now; try again in a moment")
        )


@dataclass(slots=True)
class _Reader:
    """The reader of one request. decided: the applications that the rule was asked about;
    failed: those of them at which it failed; opened: those of which something was read."""

    user: Caller
    decided: dict[str, bool] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    opened: set[str] = field(default_factory=set)

    def allowed(self, rule: Rule, wanted: Collection[str], documents: Documents) -> set[str]:
        unknown = sorted(set(wanted) - self.decided.keys())
        for start in range(0, len(unknown), CHUNK):
            chunk = unknown[start : start + CHUNK]
            found = documents(chunk)
            for each in chunk:
                document = found.get(each)
                said = (
                    None
                    if isinstance(document, Unknown)
                    else rules.allows(rule, self.user, Application(each, document))
                )
                self.decided[each] = bool(said)
                if said is None:
                    self.failed.add(each)
        return {each for each in wanted if self.decided[each]}


_reader: ContextVar[_Reader | None] = ContextVar("history.need_to_know.reader", default=None)


@contextmanager
def read_by(user: Caller) -> Iterator[None]:
    """What is read inside is for this user: only what they need to know, masked as they may see."""
    before = _reader.set(_Reader(user))
    try:
        with masking.read_by(user):
            yield
    finally:
        _reader.reset(before)


def applies() -> bool:
    """Whether a rule decides what is read now. It does in every request, and in no command."""
    return rules.given() is not None and (_reader.get() is not None or looks.in_request())


def may_see(applications: Collection[str], documents: Documents) -> set[str]:
    """Those of these applications that the present reader may see; for lists."""
    if not applies():
        return set(applications)
    rule, reader = rules.given(), _reader.get()
    if rule is None or reader is None:  # a request that nobody in particular makes
        return set()
    return reader.allowed(rule, applications, documents)


def undecided() -> None:
    """What is about to be said may be of any application. Raises RuleFailedError where a rule
    decides."""
    if applies():
        looks.refused(FAILED)
        raise RuleFailedError


def permit(applications: Iterable[str], documents: Documents) -> None:
    """Something of these applications is about to be shown. Raises NeedToKnowError unless the
    reader may see all of them, RuleFailedError if that is not known."""
    reader = _reader.get()
    new = set(applications) - (reader.opened if reader else set())
    if not new:
        return
    closed = new - may_see(new, documents)
    if reader is not None and closed and closed <= reader.failed:
        looks.refused(FAILED)
        raise RuleFailedError
    if closed:
        looks.refused(REASON)
        raise NeedToKnowError
    if reader is not None:
        reader.opened |= new
