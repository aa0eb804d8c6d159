"""Property tests with random documents, marks and histories.

No answer contains a marked value, and no answer depends on one.
"""

import base64
import gzip
import html
import io
import itertools
import json
import random
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock
from urllib.parse import quote, quote_plus

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from annals.access.models import JournalEntry
from history.kinds.entities import (
    BY_NAME,
    ENTITIES,
    ROOT,
    EntityKind,
)
from history.models import FieldLabel
from history.store.catalogue import labels
from tests.db.store import Store, minute


def set_marks(*paths: str, entity: str = "") -> None:
    """Mark these paths as sensitive, and remove all other marks."""
    FieldLabel.objects.filter(sensitive=True).update(sensitive=False)
    for path in paths:
        FieldLabel.objects.update_or_create(
            entity=entity, path=path, defaults={"russian": "скрытое", "sensitive": True}
        )
    labels.forget_catalogue()


def log_in(name: str) -> Client:
    """Return a test client in which this login has a session."""
    client = Client()
    client.force_login(User.objects.get(username=name))
    return client


def list_encodings(text: str) -> set[bytes]:
    """Return the text in every byte encoding in which an answer could contain it."""
    escaped = json.dumps(text)[1:-1]
    variants = {
        text,
        escaped,
        html.escape(text),
        html.escape(escaped),
        quote(text),
        quote_plus(text),
    }
    variants |= {quote(text, safe=""), quote(escaped), text[::-1]}
    encoded = {variant.encode() for variant in variants}
    raw = text.encode()
    # Base64 of a text inside another text depends on its offset modulo 3.
    for shift in range(3):
        whole = base64.b64encode(b"\0" * shift + raw)
        inner = whole[4 if shift else 0 : len(whole) - 4]
        encoded |= {inner, inner.replace(b"+", b"-").replace(b"/", b"_")}
    return {entry for entry in encoded if len(entry) >= 6} | {raw, raw.hex().encode()}


def find_leaks(content: bytes, secrets: set[str]) -> list[str]:
    """Return the secrets that the content has in any encoding."""
    return [secret for secret in secrets if any(form in content for form in list_encodings(secret))]


def generate_addresses(
    entity: EntityKind, id: str, versions: list[int], paths: list[str]
) -> Iterator[str]:
    """Yield the addresses of all API calls and pages about one document.

    Args:
        paths: The paths of fields to ask for.
    """
    api, page = f"/api/v1/history/{entity.name}/{id}", f"/admin/history/{entity.name}/{id}"
    moment = quote(minute(999).isoformat())
    yield from (api, f"{api}?order=asc&sort=version", f"{api}/versions", f"{api}/blame")
    yield from (f"{api}?include=diff", f"{api}?include=changes", f"{api}/at?time={moment}")
    yield from (f"{page}/", f"{page}/versions/", f"{page}/state/", f"{page}/compare/")
    for version in versions:
        yield f"{api}/versions/{version}"
        yield f"{page}/versions/{version}/"
        yield f"{page}/versions/{version}/?download=1"
        for second in versions[:2]:
            yield f"{api}/compare?from={version}&to={second}"
            yield f"{page}/compare/?from={version}&to={second}"
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


def fetch_whole_answer(client: Client, address: str) -> bytes:
    """Return the status, the headers and the decompressed body of an answer."""
    response = client.get(address)
    body = response.content
    if response.headers.get("Content-Encoding") == "gzip":
        body = gzip.decompress(body)
    head = f"{response.status_code} {dict(response.headers)}"
    assert response.status_code < 500, (address, body)
    return head.encode() + b"\n" + body


def find_key_paths(content: bytes) -> list[str]:
    """Return the values of `keyPath` in an answer of the API, without duplicates, in their order.

    Requests to the API can send these values in the parameter `path`.
    """
    paths = [
        json.loads(b'"' + path + b'"')
        for path in re.findall(rb'"keyPath":"((?:[^"\\]|\\.)*)"', content)
    ]
    return [path for path in dict.fromkeys(paths) if path]


def run_export(entity: EntityKind = ROOT, kind: str = "jsonl", *options: str) -> bytes:
    """Return what `annals export` writes to standard output."""
    sink = io.BytesIO()
    stream = io.TextIOWrapper(sink)
    with mock.patch.object(sys, "stdout", stream):
        call_command(
            "export", "--entity", entity.name, "--format", kind, *options, stderr=io.StringIO()
        )
    stream.flush()
    return sink.getvalue()


KINDS = tuple(entity.name for entity in ENTITIES)


KEYS = [
    "pid",
    "id",
    "number",
    "name",
    "fullName",
    "type",
    "brand",
    "status",
    "createdAt",
    "a/b",
    "~",
    "*",
    "[x=y]",
    "item",
]
KIND_BY_ROOT = {True: ROOT, False: BY_NAME["participant-role"]}
NUMBER = itertools.count(1)

shapes = st.recursive(
    st.just(None),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=8,
)
documents = st.dictionaries(st.sampled_from(KEYS), shapes, min_size=1, max_size=5)
segments = st.sampled_from(
    [*(key.replace("~", "~0").replace("/", "~1") for key in KEYS), "*", "**", "0", "1"]
)
marks = st.lists(
    st.lists(segments, min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts)),
    min_size=1,
    max_size=3,
    unique=True,
)
relaxed = settings(
    max_examples=8,  # an example takes about a second
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def is_marked(patterns: Sequence[str], path: tuple[str, ...]) -> bool:
    """Return whether a path is at or below a marked path.

    This is a second implementation of marks, independent of the one that is tested.
    """
    text = "".join(f"/{part.replace('~', '~0').replace('/', '~1')}" for part in path)
    return any(re.fullmatch(_to_expression(pattern) + r"(/.*)?", text) for pattern in patterns)


def _to_expression(pattern: str) -> str:
    wildcards = {"*": "/[^/]*", "**": "(/[^/]*)*"}
    return "".join(wildcards.get(part, "/" + re.escape(part)) for part in pattern.split("/")[1:])


class ValuePools:
    """Values for the documents of one history.

    `secret` has random values for marked fields, which occur nowhere else. `open` has fixed values
    for all other fields.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        first = self.random.choice
        word = "".join(first("кбвгджзлмнпрстфх") for _ in range(8))
        code = "".join(first("bcdfghjkmnpqrtvwxz") for _ in range(10))
        digits = self.random.randrange(10**13, 10**14)
        self.secret: list[Any] = [
            f"{word} {code}",
            f"{code}<&\"'>/{word}",
            f"{word}\\\t{code}",
            digits,
            digits / 100,
            f"{code}+{digits}=",
            code * 30,
        ]
        self.secret_keys = [f"{code}-key", f"{word}/key"]
        self.texts = {f"{word} {code}", f"{code}<&\"'>/{word}", code, word, str(digits)}
        self.open = ["open one", "open two", 17, 17.5, None, True, "2020-01-01T00:00:00Z", ""]

    def fill(
        self, shape: Any, patterns: Sequence[str], picks: Iterator[int], path: tuple[str, ...] = ()
    ) -> Any:
        """Return a JSON value with the structure of `shape`, with a value from a pool in each leaf.

        At and below a marked path (`patterns`), values come from `secret` and keys from
        `secret_keys`. `picks` are the positions of the values in their pool.
        """
        hidden = bool(path) and is_marked(patterns, path)
        if isinstance(shape, dict) and shape:
            names = self.secret_keys * 3 if hidden else list(shape)
            return {
                name: self.fill(inner, patterns, picks, (*path, name))
                for name, inner in zip(names, shape.values(), strict=False)
            }
        if isinstance(shape, list) and shape:
            return [
                self.fill(inner, patterns, picks, (*path, str(index)))
                for index, inner in enumerate(shape)
            ]
        pool = self.secret if hidden else self.open
        return pool[next(picks) % len(pool)]


def iterate_answers(
    client: Client, entity: EntityKind, id: str, versions: int
) -> Iterator[tuple[str, bytes]]:
    """Yield the address and the answer of every API call and page about a document.

    A call that needs the path of a field is made for up to four paths, which the timeline and the
    blame contain as `keyPath`. The access journal is emptied first, so that no page lists documents
    that the login opened earlier.
    """
    JournalEntry.objects.all().delete()
    api = f"/api/v1/history/{entity.name}/{id}"
    first_answers = client.get(api).content + client.get(f"{api}/blame").content
    for address in generate_addresses(
        entity, id, list(range(versions)), find_key_paths(first_answers)[:4]
    ):
        yield address, fetch_whole_answer(client, address)


# Mask tokens in answers, and their short form on pages.
TOKEN = re.compile(rb"masked(:|%3A)[0-9a-f]{16}")
SHORT = re.compile("•••• [0-9a-f]{6}".encode())
# What is random in every answer: request ids, CSRF tokens, cookies.
RANDOM = re.compile(rb"[0-9a-f]{32}|csrfmiddlewaretoken\" value=\"\w+|'Set-Cookie'.*?;")


def neutralise_answer(body: bytes, id: str) -> bytes:
    """Return the answer without its random parts.

    The id is replaced by ID, and each mask token by its number in the order of appearance.
    """
    seen: dict[bytes, bytes] = {}

    def number_token(match: re.Match[bytes]) -> bytes:
        digits = match[0][-16:] if b"masked" in match[0] else match[0][-6:]
        return b"<%b>" % seen.setdefault(digits[:6], b"%d" % len(seen))

    body = RANDOM.sub(b"", body).replace(id.encode(), b"ID")
    body = re.sub(rb'"X-Request-ID"[^,}]*|\'(X-Request-ID|Expires)\': \'.*?\'', b"", body)
    return SHORT.sub(number_token, TOKEN.sub(number_token, body))


@relaxed
@given(
    shapes=st.lists(documents, min_size=1, max_size=3),
    patterns=marks,
    picks=st.lists(st.integers(0, 50), min_size=1, max_size=20),
    root=st.booleans(),
    seeds=st.tuples(st.integers(0, 2**32), st.integers(0, 2**32)).filter(lambda s: s[0] != s[1]),
)
def test_answers_do_not_depend_on_marked_values(
    store: Store,
    shapes: list[Any],
    patterns: list[str],
    picks: list[int],
    root: bool,
    seeds: tuple[int, int],
) -> None:
    """Compare the answers about two histories that differ only in marked values.

    If two places of one history have equal marked values, so have these places of the second
    history. The answers must be the same bytes except for mask tokens, and contain no marked value.
    """
    entity, histories, neutral_answers = KIND_BY_ROOT[root], [], []
    for index, seed in enumerate(seeds):
        id, picks_cycle, pools = f"H{next(NUMBER):06}", itertools.cycle(picks), ValuePools(seed)
        if index:
            pools.secret.reverse()  # each marked field gets another type and length
        history = [pools.fill(shape, patterns, picks_cycle) for shape in shapes]
        for version, document in enumerate(history):
            store.add(id, version, document, version, entity=entity, application=id)
        histories.append((id, pools, history))
    set_marks(*patterns)
    try:
        for id, pools, history in histories:
            answers = list(iterate_answers(log_in("support"), entity, id, len(shapes)))
            lines = [line for line in run_export(entity).splitlines() if id.encode() in line]
            assert len(lines) == len(history)
            wrong = {address: find_leaks(body, pools.texts) for address, body in answers}
            wrong["export"] = find_leaks(b"\n".join(lines), pools.texts)
            assert not {address: texts for address, texts in wrong.items() if texts}
            newest = f"/api/v1/history/{entity.name}/{id}/versions/{len(history) - 1}"
            in_clear = json.loads(log_in("underwriter").get(newest).content)["data"]["entity"]
            assert in_clear == json.loads(json.dumps(history[-1]))
            neutral_answers.append(
                [
                    (neutralise_answer(address.encode(), id), neutralise_answer(body, id))
                    for address, body in answers
                ]
            )
        for first, second in zip(*neutral_answers, strict=True):
            assert first == second
    finally:
        set_marks()


@pytest.fixture(autouse=True)
def forget_labels() -> Iterator[None]:
    yield
    labels.forget_catalogue()
