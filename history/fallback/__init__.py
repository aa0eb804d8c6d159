"""The fallback to the old service: versions that only it has, while people move over."""

from history.fallback.answer import WrongAnswerError
from history.fallback.client import OldServiceError, Service, service
