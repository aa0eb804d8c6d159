"""Every answer of the product about some documents, and the forms in which a text can be in one."""

from __future__ import annotations

import base64
import gzip
import html
import io
import json
import re
import sys
from collections.abc import Iterator
from unittest import mock
from urllib.parse import quote, quote_plus

from django.core.management import call_command
from django.test import Client

from history import labels
from history.entities import ENTITIES, ROOT, Entity
from history.models import FieldLabel
from tests.db.store import minute


def mark(*paths: str, entity: str = "") -> None:
    """Mark these paths sensitive and nothing else."""
    FieldLabel.objects.filter(sensitive=True).update(sensitive=False)
    for path in paths:
        FieldLabel.objects.update_or_create(
            entity=entity, path=path, defaults={"russian": "скрытое", "sensitive": True}
        )
    labels.forget()


def forms(text: str) -> set[bytes]:
    """The text as bytes in the encodings that an answer may use for it."""
    escaped = json.dumps(text)[1:-1]
    found = {text, escaped, html.escape(text), html.escape(escaped), quote(text), quote_plus(text)}
    found |= {quote(text, safe=""), quote(escaped), text[::-1]}
    encoded = {each.encode() for each in found}
    raw = text.encode()
    # Base64 of a text inside another one starts at one of three places.
    for shift in range(3):
        whole = base64.b64encode(b"\0" * shift + raw)
        inner = whole[4 if shift else 0 : len(whole) - 4]
        encoded |= {inner, inner.replace(b"+", b"-").replace(b"/", b"_")}
    return {each for each in encoded if len(each) >= 6} | {raw, raw.hex().encode()}


def leaks(content: bytes, secrets: set[str]) -> list[str]:
    """Those of the secrets that are in an answer, in any form."""
    return [secret for secret in secrets if any(form in content for form in forms(secret))]


def addresses(entity: Entity, id: str, versions: list[int], paths: list[str]) -> Iterator[str]:
    """All calls and all pages about one entity. paths: those to ask for."""
    api, page = f"/api/v1/history/{entity.name}/{id}", f"/admin/history/{entity.name}/{id}"
    moment = quote(minute(999).isoformat())
    yield from (api, f"{api}?order=asc&sort=version", f"{api}/versions", f"{api}/blame")
    yield from (f"{api}?include=diff", f"{api}?include=changes", f"{api}/at?time={moment}")
    yield from (f"{page}/", f"{page}/versions/", f"{page}/state/", f"{page}/compare/")
    for version in versions:
        yield f"{api}/versions/{version}"
        yield f"{page}/versions/{version}/"
        yield f"{page}/versions/{version}/?download=1"
        for other in versions[:2]:
            yield f"{api}/compare?from={version}&to={other}"
            yield f"{page}/compare/?from={version}&to={other}"
    for path in paths:
        yield f"{api}?path={quote(path, safe='')}"
        yield f"{api}/fields?path={quote(path, safe='')}"
        yield f"{page}/?path={quote(path, safe='')}"
        yield f"{page}/versions/{versions[-1]}/unmask/?path={quote(path, safe='')}"
    if entity.root:
        whole = f"/api/v1/applications/{id}"
        yield from (f"{whole}/history", f"{whole}/at?time={moment}", f"/admin/applications/{id}/")
        yield f"/admin/at/{id}/?time=2099-01-01T00:00"
    yield from (f"/api/v1/search?q={id}", f"/admin/history/?q={id}", f"/admin/history/?q={id},x")
    yield from ("/admin/", f"{api}/versions/99", f"{api}?path=wrong", f"{page}/versions/99/")


def whole_answer(client: Client, address: str) -> bytes:
    """Status, headers and body of an answer, unpacked."""
    response = client.get(address)
    body = response.content
    if response.headers.get("Content-Encoding") == "gzip":
        body = gzip.decompress(body)
    head = f"{response.status_code} {dict(response.headers)}"
    assert response.status_code < 500, (address, body)
    return head.encode() + b"\n" + body


def paths_in(content: bytes) -> list[str]:
    """The key paths that an answer names, in its order: they can be asked for."""
    found = [
        json.loads(b'"' + path + b'"')
        for path in re.findall(rb'"keyPath":"((?:[^"\\]|\\.)*)"', content)
    ]
    return [path for path in dict.fromkeys(found) if path]


def exported(entity: Entity = ROOT, kind: str = "jsonl", *options: str) -> bytes:
    """What `annals export` writes to standard output."""
    sink = io.BytesIO()
    stream = io.TextIOWrapper(sink)
    with mock.patch.object(sys, "stdout", stream):
        call_command(
            "export", "--entity", entity.name, "--format", kind, *options, stderr=io.StringIO()
        )
    stream.flush()
    return sink.getvalue()


KINDS = tuple(entity.name for entity in ENTITIES)
