"""Makes the answers to errors that only the API has.

history.common.error_answers makes the answers to all other errors.
"""

from collections.abc import Mapping
from typing import Any, Final

from django.http import HttpResponse
from django.utils.translation import gettext as _
from msgspec import UNSET

from history.common import deadline, error_answers
from history.common.error_answers import MESSAGES, ErrorKind
from history.policy.need_to_know import NeedToKnowError, RuleFailedError
from history.store.blocks.codec import DamagedBlockError
from history.timeline import (
    ArchiveUnavailableError,
    BadParameterError,
    NotFoundError,
    NoVersionError,
    OlderThanRetentionError,
)


class UnknownEntityError(LookupError):
    """Raised if an address names a kind that does not exist."""


class UnknownAddressError(LookupError):
    """Raised if the API does not have the address."""


# These come before the general kinds: NeedToKnowError is a subclass of PermissionDenied.
_API_KINDS: Final = (
    ErrorKind((BadParameterError,), 400, "bad_parameter"),
    ErrorKind((OlderThanRetentionError,), 404, "older_than_retention"),
    ErrorKind((NoVersionError,), 404, "not_found"),
    ErrorKind((UnknownEntityError,), 404, "unknown_entity"),
    ErrorKind((UnknownAddressError,), 404, "unknown_address"),
    ErrorKind((NeedToKnowError,), 403, "need_to_know"),
    ErrorKind((RuleFailedError,), 503, "unavailable"),
    ErrorKind((ArchiveUnavailableError,), 503, "archive_unavailable"),
    ErrorKind((DamagedBlockError,), 500, "damaged"),
)
ERROR_KINDS: Final = (*_API_KINDS, *error_answers.ERROR_KINDS)


def make_error_answer(error: Exception, context: Mapping[str, Any]) -> HttpResponse:
    """Make the answer to an exception in a view. DRF calls this as its EXCEPTION_HANDLER."""
    # At the deadline a statement is cancelled: then the error only follows from the deadline.
    error = deadline.find_overrun() or error
    request = context["request"]
    kind = error_answers.find_error_kind(error, _API_KINDS)
    if kind is None:
        return error_answers.make_error_answer(request, error)
    has_own_message = kind.code not in MESSAGES or isinstance(error, RuleFailedError)
    message = str(error) if has_own_message else ""
    if isinstance(error, DamagedBlockError):
        message = str(MESSAGES[kind.code]).format(day=error.day)
    reader = getattr(context.get("view"), "reader", None)
    if isinstance(error, NotFoundError) and reader is not None and reader.old_service.failed:
        message += f"; {_('the old service does not answer, it may have more')}"
    parameter = error.name if isinstance(error, BadParameterError) else UNSET
    return error_answers.answer_error(request, error, kind.status, kind.code, message, parameter)
