"""Random documents, marks and histories: no answer has a marked value, or depends on one."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from history import labels
from history.entities import BY_NAME, ROOT, Entity
from tests.access.masked_answers import addresses, exported, leaks, mark, paths_in, whole_answer
from tests.db.store import Store

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
OF = {True: ROOT, False: BY_NAME["participant-role"]}
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
    max_examples=12,  # about a second each
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def marked(patterns: Sequence[str], path: tuple[str, ...]) -> bool:
    """Whether a place is at or below a marked path: an own reading of what a mark means."""
    text = "".join(f"/{part.replace('~', '~0').replace('/', '~1')}" for part in path)
    return any(re.fullmatch(_expression(pattern) + r"(/.*)?", text) for pattern in patterns)


def _expression(pattern: str) -> str:
    found = {"*": "/[^/]*", "**": "(/[^/]*)*"}
    return "".join(found.get(part, "/" + re.escape(part)) for part in pattern.split("/")[1:])


class Pools:
    """Values that occur nowhere else. secret: those of marked places; open: all others."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        one = self.random.choice
        word = "".join(one("кбвгджзлмнпрстфх") for _ in range(8))
        code = "".join(one("bcdfghjkmnpqrtvwxz") for _ in range(10))
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
        """The shape with a value in each leaf. Keys below a marked place are secret too."""
        hidden = bool(path) and marked(patterns, path)
        if isinstance(shape, dict) and shape:
            names = self.secret_keys * 3 if hidden else list(shape)
            return {
                name: self.fill(inner, patterns, picks, (*path, name))
                for name, inner in zip(names, shape.values(), strict=False)
            }
        if isinstance(shape, list) and shape:
            return [
                self.fill(inner, patterns, picks, (*path, str(place)))
                for place, inner in enumerate(shape)
            ]
        pool = self.secret if hidden else self.open
        return pool[next(picks) % len(pool)]


def login(name: str) -> Client:
    client = Client()
    client.force_login(User.objects.get(username=name))
    return client


def answers(client: Client, entity: Entity, id: str, versions: int) -> Iterator[tuple[str, bytes]]:
    """Every answer about an entity, also those to the questions that answers suggest."""
    api = f"/api/v1/history/{entity.name}/{id}"
    said = client.get(api).content + client.get(f"{api}/blame").content
    for address in addresses(entity, id, list(range(versions)), paths_in(said)[:4]):
        yield address, whole_answer(client, address)


@relaxed
@given(
    shapes=st.lists(documents, min_size=1, max_size=3),
    patterns=marks,
    picks=st.lists(st.integers(0, 50), min_size=1, max_size=20),
    root=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_no_marked_value_is_in_any_answer(
    store: Store, shapes: list[Any], patterns: list[str], picks: list[int], root: bool, seed: int
) -> None:
    entity, id, pools = OF[root], f"H{next(NUMBER):06}", Pools(seed)
    chosen = itertools.cycle(picks)
    history = [pools.fill(shape, patterns, chosen) for shape in shapes]
    for version, document in enumerate(history):
        store.add(id, version, document, version, entity=entity, application=id)
    mark(*patterns)
    support = login("support")
    try:
        found = dict(answers(support, entity, id, len(history)))
        lines = [each for each in exported(entity).splitlines() if id.encode() in each]
        assert len(lines) == len(history)
        found["export"] = b"\n".join(lines)
        wrong = {address: leaks(body, pools.texts) for address, body in found.items()}
        assert not {address: texts for address, texts in wrong.items() if texts}
        newest = json.loads(login("underwriter").get(_version(entity, id, history)).content)
        assert newest["data"]["entity"] == json.loads(json.dumps(history[-1]))
    finally:
        mark()


def _version(entity: Entity, id: str, history: Sequence[Any]) -> str:
    return f"/api/v1/history/{entity.name}/{id}/versions/{len(history) - 1}"


TOKEN = re.compile(rb"masked(:|%3A)[0-9a-f]{16}")
SHORT = re.compile("•••• [0-9a-f]{6}".encode())
CHANCE = re.compile(rb"[0-9a-f]{32}|csrfmiddlewaretoken\" value=\"\w+|'Set-Cookie'.*?;")


def neutral(body: bytes, id: str) -> bytes:
    """An answer with its id, and with its tokens by the order in which they come."""
    seen: dict[bytes, bytes] = {}

    def number(match: re.Match[bytes]) -> bytes:
        digits = match[0][-16:] if b"masked" in match[0] else match[0][-6:]
        return b"<%b>" % seen.setdefault(digits[:6], b"%d" % len(seen))

    body = CHANCE.sub(b"", body).replace(id.encode(), b"ID")
    body = re.sub(
        rb'"(ETag|X-Request-ID)"[^,}]*|\'(ETag|X-Request-ID|Expires)\': \'.*?\'', b"", body
    )
    return SHORT.sub(number, TOKEN.sub(number, body))


@relaxed
@given(
    shapes=st.lists(documents, min_size=1, max_size=3),
    patterns=marks,
    picks=st.lists(st.integers(0, 50), min_size=1, max_size=20),
    root=st.booleans(),
    seeds=st.tuples(st.integers(0, 2**32), st.integers(0, 2**32)).filter(lambda s: s[0] != s[1]),
)
def test_no_answer_depends_on_a_marked_value(
    store: Store,
    shapes: list[Any],
    patterns: list[str],
    picks: list[int],
    root: bool,
    seeds: tuple[int, int],
) -> None:
    """Two histories that differ in their marked values only, equal where the other one is equal:
    what is said of them is the same, byte by byte, but for the tokens."""
    entity, ids = OF[root], []
    for turn, seed in enumerate(seeds):
        id, chosen, pools = f"H{next(NUMBER):06}", itertools.cycle(picks), Pools(seed)
        if turn:
            pools.secret.reverse()  # other types and lengths in each place
        ids.append(id)
        for version, shape in enumerate(shapes):
            document = pools.fill(shape, patterns, chosen)
            store.add(id, version, document, version, entity=entity, application=id)
    mark(*patterns)
    try:
        one, other = (
            [
                (neutral(address.encode(), id), neutral(body, id))
                for address, body in answers(login("support"), entity, id, len(shapes))
            ]
            for id in ids
        )
        for mine, its in zip(one, other, strict=True):
            assert mine == its
    finally:
        mark()


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    yield
    labels.forget()
