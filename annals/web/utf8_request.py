"""The request class of the web, which reads all texts as UTF-8."""

from typing import Any

from django.core.handlers.wsgi import WSGIRequest

from history.common.addresses import RAW_PATH


class Utf8Request(WSGIRequest):
    """A request whose texts are read as UTF-8, even if its Content-Type names another charset.

    Django would accept every codec of Python, and with some of them it fails before any middleware.
    """

    def __init__(self, environ: dict[str, Any]) -> None:
        raw = environ.get("PATH_INFO", "")
        super().__init__(environ)
        self.META[RAW_PATH] = raw  # Django replaces bytes that are not UTF-8 (%FF)

    @property
    def encoding(self) -> None:
        """Always None: Django then uses its setting, which is UTF-8."""

    @encoding.setter
    def encoding(self, _: str | None) -> None:
        """Ignore the charset of the Content-Type."""
