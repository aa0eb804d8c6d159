"""Requests whose texts are UTF-8."""

from __future__ import annotations

from django.core.handlers.wsgi import WSGIRequest


class Utf8Request(WSGIRequest):
    """A request whose texts are UTF-8, whatever charset its Content-Type names. Django takes any
    codec of Python for them. At some of these it fails before any middleware runs, so neither the
    request log nor the journal has the request; others make half characters."""

    @property
    def encoding(self) -> None:
        """None: as the settings say, which is UTF-8."""

    @encoding.setter
    def encoding(self, _: str | None) -> None:
        """The charset of the Content-Type is ignored."""
