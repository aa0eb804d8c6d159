"""Whom Annals asks for missing versions: the sources that ANNALS_SOURCES_FILE declares."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from annals import env
from history.entities import BY_NAME
from history.failure.complaints import FileError, of_declaration, read_bytes

NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
OLD_SERVICE: Final = "old-service"

Text = Annotated[str, Meta(min_length=1, max_length=1000)]


class SourcesError(ValueError):
    """The file cannot be used. The message says where it is wrong and what would be right."""


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A service with the app `outbox`. url: where it includes outbox.urls. kinds, client_ids: it is
    asked for missing versions of these kinds, before a version of these services; empty: of any.
    seconds: that one answer may take."""

    name: Text
    url: Text
    token_file: Path
    kinds: tuple[Text, ...] = ()
    client_ids: tuple[Text, ...] = ()
    ca_file: Path | None = None
    seconds: Annotated[float, Meta(ge=0.1, le=60)] = 10.0
    requests_per_second: Annotated[float, Meta(ge=0.01, le=100)] = 5.0


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    source: Annotated[tuple[Source, ...], Meta(min_length=1)]


def read(path: Path) -> tuple[Source, ...]:
    """The sources in the order of the file. Raises SourcesError."""
    try:
        found = msgspec.toml.decode(read_bytes(path), type=_File, dec_hook=_path).source
    except FileError as error:
        raise SourcesError(str(error)) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SourcesError(f"{path}: {of_declaration(error, 'TOML')}") from None
    names = [source.name for source in found]
    for source in found:
        if (wrong := _wrong(source, names)) is not None:
            raise SourcesError(f"{path}, source {source.name!r}: {wrong}")
    return found


def _wrong(source: Source, names: list[str]) -> str | None:
    if NAME.fullmatch(source.name) is None or source.name == OLD_SERVICE:
        return (
            "name must be lower case letters, digits and hyphens, 32 at most, and not "
            f"{OLD_SERVICE}, which is the service of ANNALS_FALLBACK_URL"
        )
    if names.count(source.name) > 1:
        return "two sources have this name"
    if not env.is_safe_url(source.url):
        return (
            "url must be https://HOST/PATH (http:// only on the loopback address), without user, "
            "query and fragment"
        )
    if unknown := sorted(set(source.kinds) - BY_NAME.keys()):
        return f"kinds has {', '.join(unknown)}; the kinds are {', '.join(BY_NAME)}"
    if not source.kinds and not source.client_ids:
        return "kinds or client_ids must say for what it is asked"
    return None


def _path(kind: type, value: object) -> object:
    if kind is Path and isinstance(value, str) and value:
        return Path(value).expanduser()
    raise TypeError(kind)
