"""Every request has a deadline, and a share if it is expensive."""

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import msgspec
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory

from annals.handling import Deadlines
from history.requests import deadline, worker_shares
from history.requests.deadline import Work
from history.requests.worker_shares import BusyError, Share
from tests.consuming import until
from tests.db.store import Store

PATH = "/api/v1/history/product-instance/A1"

View = Callable[[HttpRequest], HttpResponse]


def sleeping(_: HttpRequest) -> HttpResponse:
    """A view whose statement takes a minute, with the limit that statements of the web have."""
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = '1s'")
        cursor.execute("SELECT pg_sleep(60)")
    return HttpResponse("slept")


def computing(_: HttpRequest) -> HttpResponse:
    """A view that computes until it is stopped."""
    while True:
        deadline.check()


def asked(view: View) -> HttpResponse:
    """The answer of a view behind the middleware. What a view raises is answered as Django does."""

    def respond(request: HttpRequest) -> HttpResponse:
        try:
            return view(request)
        except Exception as error:
            return middleware.process_exception(request, error) or HttpResponse(status=500)

    middleware = Deadlines(respond)
    return middleware(RequestFactory().get(PATH))


@pytest.fixture
def short(settings: Any, transactional_db: None) -> Iterator[None]:
    """The deadline is a second, in a session that does not empty the tables afterwards."""
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, request_seconds=1)
    yield
    connection.close()


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Share:
    """All expensive questions share one place, and none waits for it."""
    monkeypatch.setattr(worker_shares, "WAIT_S", 0.0)
    share = Share(1)
    monkeypatch.setattr(worker_shares, "_share", share)
    return share


def code(answer: HttpResponse) -> str:
    return str(msgspec.json.decode(answer.content)["error"]["code"])


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("view", [sleeping, computing])
@pytest.mark.usefixtures("short")
def test_at_the_deadline_the_work_ends(view: View) -> None:
    answer = asked(view)
    assert answer.status_code == 503
    assert code(answer) == "too_long"
    assert "Retry-After" not in answer.headers


def test_a_share_runs_some_and_lets_some_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_shares, "WAIT_S", 30.0)
    share, go, done = Share(2), threading.Event(), []
    inside = 0

    def work() -> None:
        nonlocal inside
        with share.taken():
            inside += 1
            go.wait(30)
            done.append(1)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    until(lambda: inside == 2 and share.queued == 4, "two run, four wait")
    with pytest.raises(BusyError), share.taken():
        pass
    go.set()
    for thread in threads:
        thread.join()
    assert len(done) == 6
    with share.taken():
        pass


@contextmanager
def entered_in_another_thread(block: AbstractContextManager[object]) -> Iterator[None]:
    """Another thread is inside `block` until the end of this one."""
    begun, over = threading.Event(), threading.Event()

    def hold() -> None:
        with block:
            begun.set()
            over.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert begun.wait(20)
        yield
    finally:
        over.set()
        thread.join(20)


def taken(share: Share, owner: object) -> AbstractContextManager[None]:
    """Another thread has a place of this owner."""
    return entered_in_another_thread(share.taken(owner))


@contextmanager
def queued(share: Share, owner: object, got: list[object]) -> Iterator[None]:
    """Another thread waits for a place of this owner. got: owners, when they have one; "refused"
    with the owner where it is refused."""

    def wait() -> None:
        try:
            with share.taken(owner):
                got.append(owner)
        except BusyError:
            got.append(("refused", owner))

    before = share.queued
    thread = threading.Thread(target=wait)
    thread.start()
    try:
        until(lambda: share.queued == before + 1 or bool(got), "it waits")
        yield
    finally:
        thread.join(60)


def test_share_leaves_half_of_places_and_queue_to_others_when_one_login_takes_all_it_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_shares, "WAIT_S", 30.0)
    share = Share(4)  # eight may wait
    got: list[object] = []
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(queued(share, "greedy", got))
        with taken(share, "greedy"), taken(share, "greedy"):
            pass
    assert got == ["greedy"] * 4  # nothing was held: none had to wait

    with ExitStack() as waiting, ExitStack() as places:
        for _ in range(2):
            places.enter_context(taken(share, "greedy"))
        got.clear()
        for _ in range(4):
            waiting.enter_context(queued(share, "greedy", got))
        with pytest.raises(BusyError) as refused, share.taken("greedy"):
            pass
        assert refused.value.own
        with share.taken("colleague"), taken(share, "colleague"):
            assert not got
        places.close()
    assert got == ["greedy"] * 4


def test_share_gives_next_place_to_login_with_fewest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_shares, "WAIT_S", 30.0)
    share = Share(4)
    got: list[object] = []
    with ExitStack() as waiting, ExitStack() as one, ExitStack() as others:
        for owner in ("a", "a", "b"):
            others.enter_context(taken(share, owner))
        one.enter_context(taken(share, "b"))
        for owner in ("a", "b", "a", "colleague"):
            waiting.enter_context(queued(share, owner, got))
        one.close()
        until(lambda: bool(got), "one had a place")
        assert got[0] == "colleague"
        others.close()
        until(lambda: len(got) == 4, "all had a place")


def test_full_queue_makes_room_for_login_with_fewer_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_shares, "WAIT_S", 30.0)
    share = Share(4, 4)
    got: list[object] = []
    with ExitStack() as waiting, ExitStack() as one, ExitStack() as places:
        for owner in ("a", "a", "b"):
            places.enter_context(taken(share, owner))
        one.enter_context(taken(share, "b"))
        for owner in ("a", "a", "b", "b"):
            waiting.enter_context(queued(share, owner, got))
        waiting.enter_context(queued(share, "colleague", got))
        assert got == [("refused", "b")]
        one.close()
        until(lambda: len(got) > 1, "one had a place")
        assert got[1] == "colleague"
        places.close()
        until(lambda: len(got) == 5, "all others had a place")
    assert sorted(map(str, got[2:])) == ["a", "a", "b"]


@pytest.mark.django_db
def test_expensive_questions_are_refused_while_others_are_answered(
    store: Store, client: Client, full: Share, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add("A1", 0, {"n": 1}, 0)
    monkeypatch.setattr(worker_shares, "CHEAP_S", math.inf)  # a first page may compute for long
    basic = {"authorization": "Basic c3VwcG9ydDpzdXBwb3J0"}
    with full.taken():
        for expensive in (
            "/blame",
            "/fields?path=/n",
            "?path=/n",
            "?archive=true",
            "?pageSize=101",
        ):
            answer = client.get(PATH + expensive, headers=basic)
            assert (answer.status_code, code(answer)) == (503, "busy")
            assert answer.headers["Retry-After"] == "5"
        assert client.get(PATH, headers=basic).status_code == 200
        client.force_login(User.objects.get(username="support"))
        page = client.get("/admin/history/product-instance/A1/state/")
        assert page.status_code == 503
        assert "Сейчас слишком много запросов" in page.content.decode()
        assert client.get("/admin/history/product-instance/A1/").status_code == 200
    assert client.get(f"{PATH}/blame", headers=basic).status_code == 200


@pytest.mark.django_db
def test_what_computes_for_long_is_expensive_whatever_it_asks(
    store: Store, client: Client, full: Share, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in range(2):
        store.add("A1", version, {"n": version, "items": [{"id": n} for n in range(5)]}, version)
    basic = {"authorization": "Basic c3VwcG9ydDpzdXBwb3J0"}
    client.force_login(User.objects.get(username="support"))
    screens = ("/admin/history/product-instance/A1/", "/admin/history/product-instance/A1/state/")
    asked = (PATH, f"{PATH}/compare?from=0&to=1", f"{PATH}/versions/1")
    with full.taken():
        for each in asked:
            assert client.get(each, headers=basic).status_code == 200
        monkeypatch.setattr(worker_shares, "CHEAP_S", 0.0)
        for each in asked:
            answer = client.get(each, headers=basic)
            assert (each, answer.status_code, code(answer)) == (each, 503, "busy")
        assert [client.get(each).status_code for each in screens] == [503, 503]
    # A request takes one place, and gives it back.
    for each in (*asked, *screens, f"{PATH}/blame"):
        assert client.get(each, headers=basic).status_code == 200
    with full.taken():
        pass


@pytest.mark.django_db
def test_the_gaps_are_a_expensive_question(
    client: Client, full: Share, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their sums read all that are open. No login may hold all threads with them."""
    ops = User.objects.get(username="ops")
    client.force_login(ops)
    with full.taken():
        assert client.get("/admin/gaps/").status_code == 503
        assert client.get("/admin/completeness/").status_code == 200
    assert client.get("/admin/gaps/").status_code == 200
    monkeypatch.setattr(worker_shares, "MOST_BESIDE", 1)
    with place_of(ops.pk):
        assert client.get("/admin/completeness/").status_code == 503


def place_of(login: object, *, expensive: bool = True) -> AbstractContextManager[None]:
    """A question of this login is answered in another thread."""

    @contextmanager
    def answered() -> Iterator[None]:
        with (
            deadline.limited(Work()),
            worker_shares.of_login(login),
            worker_shares.expensive(expensive),
        ):
            yield

    return entered_in_another_thread(answered())


@pytest.mark.django_db
def test_a_login_with_many_requests_leaves_the_threads_to_others(
    store: Store, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add("A1", 0, {"n": 1}, 0)
    monkeypatch.setattr(worker_shares, "MOST_BESIDE", 2)
    support, auditor = (User.objects.get(username=name) for name in ("support", "auditor"))
    other = Client()
    other.force_login(auditor)
    client.force_login(support)
    screen = "/admin/history/product-instance/A1/"
    with place_of(support.pk):
        assert client.get(PATH).status_code == client.get(screen).status_code == 200
        with place_of(support.pk):
            answer = client.get(PATH)
            assert (answer.status_code, code(answer)) == (503, "busy")
            assert answer.headers["Retry-After"] == "5"
            assert client.get(screen).status_code == 503
            assert other.get(PATH).status_code == other.get(screen).status_code == 200
    assert client.get(PATH).status_code == client.get(screen).status_code == 200
    assert not worker_shares._answered


def test_further_request_of_login_waits_when_its_others_are_quick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A program that asks many cheap questions in parallel is refused none."""
    monkeypatch.setattr(worker_shares, "MOST_BESIDE", 1)
    monkeypatch.setattr(worker_shares, "QUICK_S", 60.0)
    begun, answered = threading.Event(), threading.Event()

    def ask() -> None:
        work = Work()
        begun.set()
        with deadline.limited(work), worker_shares.of_login("program"):
            answered.set()

    asking = threading.Thread(target=ask)
    with place_of("program", expensive=False):
        asking.start()
        assert begun.wait(20)
        with place_of("colleague", expensive=False):
            assert not answered.is_set()
    asking.join(20)
    assert answered.is_set()


def test_further_request_of_login_is_refused_when_its_others_are_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They may wait for PostgreSQL, which is no computing, and keep all threads meanwhile."""
    monkeypatch.setattr(worker_shares, "MOST_BESIDE", 2)
    monkeypatch.setattr(worker_shares, "QUICK_S", 0.0)
    with place_of("program", expensive=False), place_of("program", expensive=False):
        with pytest.raises(BusyError) as refused, worker_shares.of_login("program"):
            pass
        assert refused.value.own
        with worker_shares.of_login("colleague"):
            pass


@pytest.mark.django_db
def test_every_page_of_site_counts_as_request_of_its_login(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_shares, "MOST_BESIDE", 1)
    login = User.objects.create_superuser("root")
    client.force_login(login)
    pages = ("/admin/", "/admin/history/person/", "/admin/gaps/", "/admin/client/?q=1")
    assert [client.get(page).status_code for page in pages] == [200] * len(pages)
    with place_of(login.pk):
        for page in pages:
            answer = client.get(page)
            assert (page, answer.status_code) == (page, 503)
            assert answer.headers["Retry-After"] == "5"
            assert "This login has too many" in answer.content.decode()
    assert not worker_shares._answered


def test_nothing_of_a_metered_request_stays_in_its_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The place that a check takes is given back later than the login ends."""
    monkeypatch.setattr(worker_shares, "CHEAP_S", 0.0)
    full = Share(1, 0)
    monkeypatch.setattr(worker_shares, "_share", full)
    work = Work()
    with deadline.limited(work), worker_shares.metered(work), worker_shares.of_login("m.ivanov"):
        deadline.check()
        deadline.check()
        assert work.placed
        with pytest.raises(BusyError), full.taken():
            pass
    assert not work.placed
    assert not worker_shares._answered
    with full.taken():
        pass
