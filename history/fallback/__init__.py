"""The fallback: versions that only the service that Annals replaces has, while people move over.

ANNALS_FALLBACK_URL names that service ("the old service"). docs/migration.md has the steps.
"""

from history.fallback.answer import OldVersion, Subject, WrongAnswerError
from history.fallback.asked import Asked, State, asking, failed, present
from history.fallback.client import OldServiceError, Service, service

__all__ = [
    "Asked",
    "OldServiceError",
    "OldVersion",
    "Service",
    "State",
    "Subject",
    "WrongAnswerError",
    "asking",
    "failed",
    "present",
    "service",
]
