"""The closed sets of words in the journal: kinds of actor, actions, outcomes. Only Django."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class Actor(models.TextChoices):
    """Who asks. A program is named by its client id, an operator by the operating system's login;
    nobody has no name."""

    PERSON = "person", _("person")
    SERVICE = "service", _("program")
    BREAK_GLASS = "break-glass", _("break-glass login")
    OPERATOR = "operator", _("operator on the server")
    NOBODY = "nobody", _("not logged in")


class Action(models.TextChoices):
    """What is asked for."""

    TIMELINE = "timeline", _("timeline")
    APPLICATION = "application", _("whole application")
    VERSION = "version", _("one version")
    COMPARE = "compare", _("comparison")
    MOMENT = "moment", _("state at a moment")
    FIELD = "field", _("history of a field")
    BLAME = "blame", _("who changed which field")
    SEARCH = "search", _("search")
    QUARANTINE = "quarantine", _("quarantine")
    UNMASK = "unmask", _("unmasking")
    EXPORT = "export", _("export")
    JOURNAL = "journal", _("access journal")
    LOGIN = "break-glass login", _("login with the break-glass password")
    OTHER = "other", _("other")


class Outcome(models.TextChoices):
    """What came of it. refused: not logged in, no permission, too many requests. failed: nothing
    there, a wrong parameter, an error."""

    SHOWN = "shown", _("shown")
    REFUSED = "refused", _("refused")
    FAILED = "failed", _("failed")
