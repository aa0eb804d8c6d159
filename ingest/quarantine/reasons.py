"""Why messages are in quarantine, in words for people. The codes are those of ingest.source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from ingest.source.decode import Reason

REASONS: Final[Mapping[str, Promise]] = {
    Reason.EMPTY.value: _("the message is empty"),
    Reason.NOT_JSON.value: _("not JSON"),
    Reason.BAD_FIELD.value: _("a field is missing or wrong"),
    Reason.BAD_TYPE.value: _("unknown type of change"),
    Reason.BAD_TIME.value: _("not a time"),
    Reason.BAD_DATA.value: _("wrong document"),
    Reason.NO_APPLICATION.value: _("no id of the application"),
    Reason.TOO_DEEP.value: _("nested too deep"),
    Reason.TOO_LARGE.value: _("too large"),
    Reason.FUTURE.value: _("from the future"),
    Reason.UNKNOWN_TOPIC.value: _("unknown topic"),
    Reason.BAD_TEXT.value: _("a text that cannot be stored"),
    Reason.BAD_NUMBER.value: _("a number out of range"),
    Reason.NOT_STORABLE.value: _("cannot be stored"),
    Reason.DIVERGENT.value: _("differs from the stored version"),
    Reason.NO_PARTITION.value: _("its day has no partition"),
}
