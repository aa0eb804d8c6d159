"""Every request has a deadline. An expensive question also needs a place."""

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import msgspec
import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory

from annals.web.middleware.deadline import DeadlineMiddleware
from history.common import deadline, worker_shares
from history.common.deadline import RequestWork
from history.common.worker_shares import BusyError, PlacePool
from tests.consuming import wait_until
from tests.db.store import Store

PATH = "/api/v1/history/product-instance/A1"

View = Callable[[HttpRequest], HttpResponse]


def sleep_in_statement(_: HttpRequest) -> HttpResponse:
    """Run a statement that takes a minute, under a statement_timeout of one second."""
    # LOCAL: the session returns to the pool, and another test must not get its time limit.
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = '1s'")
        cursor.execute("SELECT pg_sleep(60)")
    return HttpResponse("slept")


def compute_until_stopped(_: HttpRequest) -> HttpResponse:
    """Compute until `deadline.check` raises."""
    while True:
        deadline.check()


def request_view(view: View) -> HttpResponse:
    """Return the answer of a view behind the deadline middleware.

    Errors of the view are handled as in Django.
    """

    def respond(request: HttpRequest) -> HttpResponse:
        try:
            return view(request)
        except Exception as error:
            return middleware.process_exception(request, error) or HttpResponse(status=500)

    middleware = DeadlineMiddleware(respond)
    return middleware(RequestFactory().get(PATH))


@pytest.fixture
def one_second_deadline(settings: Any, transactional_db: None) -> Iterator[None]:
    """Set the deadline of requests to one second. Close the database connection after the test."""
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, request_seconds=1)
    yield
    connection.close()


@pytest.fixture
def single_place(monkeypatch: pytest.MonkeyPatch) -> PlacePool:
    """Leave one place for expensive questions. If it is taken, a question is refused at once."""
    monkeypatch.setattr(worker_shares, "WAIT_S", 0.0)
    pool = PlacePool(1)
    monkeypatch.setattr(worker_shares, "EXPENSIVE_POOL", pool)
    return pool


def get_error_code(answer: HttpResponse) -> str:
    return str(msgspec.json.decode(answer.content)["error"]["code"])


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("view", [sleep_in_statement, compute_until_stopped])
@pytest.mark.usefixtures("one_second_deadline")
def test_request_ends_at_its_deadline(view: View) -> None:
    answer = request_view(view)
    assert answer.status_code == 503
    assert get_error_code(answer) == "too_long"
    assert "Retry-After" not in answer.headers


def test_place_pool_queues_requests_when_all_places_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_shares, "WAIT_S", 30.0)
    pool, go, finished = PlacePool(2), threading.Event(), []
    inside = 0

    def occupy_place() -> None:
        nonlocal inside
        with pool.take_place():
            inside += 1
            go.wait(120)
            finished.append(1)

    threads = [threading.Thread(target=occupy_place) for _ in range(6)]
    for thread in threads:
        thread.start()
    wait_until(lambda: inside == 2 and pool.queue_length == 4, "not two requests run and four wait")
    with pytest.raises(BusyError), pool.take_place():
        pass
    go.set()
    for thread in threads:
        thread.join()
    assert len(finished) == 6
    with pool.take_place():
        pass


@contextmanager
def enter_in_second_thread(manager: AbstractContextManager[object]) -> Iterator[None]:
    """Enter the context manager `manager` in a second thread.

    The second thread leaves `manager` when the `with` block of the caller ends.
    """
    begun, over = threading.Event(), threading.Event()

    def hold() -> None:
        with manager:
            begun.set()
            over.wait(120)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert begun.wait(120)
        yield
    finally:
        over.set()
        thread.join(120)


def hold_place(pool: PlacePool, owner: object) -> AbstractContextManager[None]:
    """Let a second thread hold a place of the login `owner` until the `with` block ends."""
    return enter_in_second_thread(pool.take_place(owner))


@contextmanager
def wait_for_place(pool: PlacePool, owner: object, got: list[object]) -> Iterator[None]:
    """Let a second thread request a place for the login `owner`, and join the thread at the end.

    Args:
        got: The thread appends the login when it has a place, or ("refused", login) when the pool
            refuses the request.
    """

    def wait() -> None:
        try:
            with pool.take_place(owner):
                got.append(owner)
        except BusyError:
            got.append(("refused", owner))

    before = pool.queue_length
    thread = threading.Thread(target=wait)
    thread.start()
    try:
        wait_until(
            lambda: pool.queue_length == before + 1 or bool(got), "the request does not wait"
        )
        yield
    finally:
        thread.join(120)


def test_one_login_gets_at_most_half_of_places_and_half_of_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_shares, "WAIT_S", 30.0)
    pool = PlacePool(4)  # eight may wait
    got: list[object] = []
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(wait_for_place(pool, "greedy", got))
        with hold_place(pool, "greedy"), hold_place(pool, "greedy"):
            pass
    assert got == ["greedy"] * 4  # there were free places, so none was refused

    with ExitStack() as waiting, ExitStack() as places:
        for _ in range(2):
            places.enter_context(hold_place(pool, "greedy"))
        got.clear()
        for _ in range(4):
            waiting.enter_context(wait_for_place(pool, "greedy", got))
        with pytest.raises(BusyError) as refused, pool.take_place("greedy"):
            pass
        assert refused.value.by_same_login
        with pool.take_place("colleague"), hold_place(pool, "colleague"):
            assert not got
        places.close()
    assert got == ["greedy"] * 4


def test_place_pool_gives_next_place_to_login_with_fewest_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_shares, "WAIT_S", 30.0)
    pool = PlacePool(4)
    got: list[object] = []
    with ExitStack() as waiting, ExitStack() as one_place, ExitStack() as other_places:
        for owner in ("a", "a", "b"):
            other_places.enter_context(hold_place(pool, owner))
        one_place.enter_context(hold_place(pool, "b"))
        for owner in ("a", "b", "a", "colleague"):
            waiting.enter_context(wait_for_place(pool, owner, got))
        one_place.close()
        wait_until(lambda: bool(got), "no request got a place")
        assert got[0] == "colleague"
        other_places.close()
        wait_until(lambda: len(got) == 4, "not all requests got a place")


def test_full_queue_drops_newest_request_of_busiest_login_when_a_login_without_requests_sends_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_shares, "WAIT_S", 30.0)
    pool = PlacePool(4, 4)
    got: list[object] = []
    with ExitStack() as waiting, ExitStack() as one_place, ExitStack() as places:
        for owner in ("a", "a", "b"):
            places.enter_context(hold_place(pool, owner))
        one_place.enter_context(hold_place(pool, "b"))
        for owner in ("a", "a", "b", "b"):
            waiting.enter_context(wait_for_place(pool, owner, got))
        waiting.enter_context(wait_for_place(pool, "colleague", got))
        assert got == [("refused", "b")]
        one_place.close()
        wait_until(lambda: len(got) > 1, "no request got the place")
        assert got[1] == "colleague"
        places.close()
        wait_until(lambda: len(got) == 5, "not all requests got a place")
    assert sorted(map(str, got[2:])) == ["a", "a", "b"]


@pytest.mark.django_db
def test_expensive_question_is_refused_when_all_places_are_taken(
    store: Store, client: Client, single_place: PlacePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add("A1", 0, {"n": 1}, 0)
    # The computing time of a first page does not make it an expensive question.
    monkeypatch.setattr(worker_shares, "MAX_CHEAP_S", math.inf)
    basic = {"authorization": "Basic c3VwcG9ydDpzdXBwb3J0"}
    with single_place.take_place():
        for expensive in (
            "/blame",
            "/fields?path=/n",
            "?path=/n",
            "?archive=true",
            "?pageSize=101",
        ):
            answer = client.get(PATH + expensive, headers=basic)
            assert (answer.status_code, get_error_code(answer)) == (503, "busy")
            assert answer.headers["Retry-After"] == "5"
        assert client.get(PATH, headers=basic).status_code == 200
        client.force_login(User.objects.get(username="support"))
        page = client.get("/admin/history/product-instance/A1/state/")
        assert page.status_code == 503
        assert "Too many requests" in page.content.decode()
        assert client.get("/admin/history/product-instance/A1/").status_code == 200
    assert client.get(f"{PATH}/blame", headers=basic).status_code == 200


@pytest.mark.django_db
def test_question_counts_as_expensive_when_it_computes_for_long(
    store: Store, client: Client, single_place: PlacePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in range(2):
        store.add("A1", version, {"n": version, "items": [{"id": n} for n in range(5)]}, version)
    basic = {"authorization": "Basic c3VwcG9ydDpzdXBwb3J0"}
    client.force_login(User.objects.get(username="support"))
    screens = ("/admin/history/product-instance/A1/", "/admin/history/product-instance/A1/state/")
    addresses = (PATH, f"{PATH}/compare?from=0&to=1", f"{PATH}/versions/1")
    with single_place.take_place():
        for address in addresses:
            assert client.get(address, headers=basic).status_code == 200
        monkeypatch.setattr(worker_shares, "MAX_CHEAP_S", 0.0)
        for address in addresses:
            answer = client.get(address, headers=basic)
            assert (address, answer.status_code, get_error_code(answer)) == (address, 503, "busy")
        assert [client.get(screen_address).status_code for screen_address in screens] == [503, 503]
    # A request takes one place, and gives it back.
    for address in (*addresses, *screens, f"{PATH}/blame"):
        assert client.get(address, headers=basic).status_code == 200
    with single_place.take_place():
        pass


@pytest.mark.django_db
def test_version_gap_page_counts_as_expensive_request(
    client: Client, single_place: PlacePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page sums over all open version gaps, so a few requests could occupy all threads."""
    ops = User.objects.get(username="ops")
    client.force_login(ops)
    with single_place.take_place():
        assert client.get("/admin/gaps/").status_code == 503
        assert client.get("/admin/completeness/").status_code == 200
    assert client.get("/admin/gaps/").status_code == 200
    monkeypatch.setattr(worker_shares, "MAX_REQUESTS_OF_LOGIN", 1)
    with run_request_of_login(ops.pk):
        assert client.get("/admin/completeness/").status_code == 503


def run_request_of_login(login: object, *, expensive: bool = True) -> AbstractContextManager[None]:
    """Let a second thread act as a running request of `login` until the `with` block ends.

    Args:
        expensive: Whether the request holds one of the places for expensive questions.
    """

    @contextmanager
    def answer_request() -> Iterator[None]:
        with (
            deadline.run_as_work(RequestWork()),
            worker_shares.count_login_request(login),
            worker_shares.take_expensive_place(expensive),
        ):
            yield

    return enter_in_second_thread(answer_request())


@pytest.mark.django_db
def test_login_with_many_requests_leaves_threads_to_other_logins(
    store: Store, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add("A1", 0, {"n": 1}, 0)
    monkeypatch.setattr(worker_shares, "MAX_REQUESTS_OF_LOGIN", 2)
    support, auditor = (User.objects.get(username=name) for name in ("support", "auditor"))
    other_client = Client()
    other_client.force_login(auditor)
    client.force_login(support)
    screen = "/admin/history/product-instance/A1/"
    with run_request_of_login(support.pk):
        assert client.get(PATH).status_code == client.get(screen).status_code == 200
        with run_request_of_login(support.pk):
            answer = client.get(PATH)
            assert (answer.status_code, get_error_code(answer)) == (503, "busy")
            assert answer.headers["Retry-After"] == "5"
            assert client.get(screen).status_code == 503
            assert other_client.get(PATH).status_code == other_client.get(screen).status_code == 200
    assert client.get(PATH).status_code == client.get(screen).status_code == 200
    assert not worker_shares._answered_work


def test_request_waits_when_login_has_reached_its_limit_with_quick_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A program is allowed to send many cheap requests in parallel. The requests wait, and none of
    these requests is refused."""
    monkeypatch.setattr(worker_shares, "MAX_REQUESTS_OF_LOGIN", 1)
    monkeypatch.setattr(worker_shares, "QUICK_S", 60.0)
    begun, answered = threading.Event(), threading.Event()

    def ask() -> None:
        work = RequestWork()
        begun.set()
        with deadline.run_as_work(work), worker_shares.count_login_request("program"):
            answered.set()

    asking = threading.Thread(target=ask)
    with run_request_of_login("program", expensive=False):
        asking.start()
        assert begun.wait(120)
        with run_request_of_login("colleague", expensive=False):
            assert not answered.is_set()
    asking.join(120)
    assert answered.is_set()


def test_request_is_refused_when_login_has_reached_its_limit_with_slow_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Slow requests occupy threads even if they only wait for PostgreSQL."""
    monkeypatch.setattr(worker_shares, "MAX_REQUESTS_OF_LOGIN", 2)
    monkeypatch.setattr(worker_shares, "QUICK_S", 0.0)
    with (
        run_request_of_login("program", expensive=False),
        run_request_of_login("program", expensive=False),
    ):
        with pytest.raises(BusyError) as refused, worker_shares.count_login_request("program"):
            pass
        assert refused.value.by_same_login
        with worker_shares.count_login_request("colleague"):
            pass


@pytest.mark.django_db
def test_every_screen_counts_towards_request_limit_of_the_login(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_shares, "MAX_REQUESTS_OF_LOGIN", 1)
    login = User.objects.create_superuser("root")
    client.force_login(login)
    pages = ("/admin/", "/admin/history/person/", "/admin/gaps/", "/admin/client/?q=1")
    assert [client.get(page).status_code for page in pages] == [200] * len(pages)
    with run_request_of_login(login.pk):
        for page in pages:
            answer = client.get(page)
            assert (page, answer.status_code) == (page, 503)
            assert answer.headers["Retry-After"] == "5"
            assert "This login has too many" in answer.content.decode()
    assert not worker_shares._answered_work


def test_request_gives_back_its_place_and_is_no_longer_counted_when_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`deadline.check` takes the place. The place is given back last."""
    monkeypatch.setattr(worker_shares, "MAX_CHEAP_S", 0.0)
    full = PlacePool(1, 0)
    monkeypatch.setattr(worker_shares, "EXPENSIVE_POOL", full)
    work = RequestWork()
    with (
        deadline.run_as_work(work),
        worker_shares.meter_cost(work),
        worker_shares.count_login_request("m.ivanov"),
    ):
        deadline.check()
        deadline.check()
        assert work.has_place
        with pytest.raises(BusyError), full.take_place():
            pass
    assert not work.has_place
    assert not worker_shares._answered_work
    with full.take_place():
        pass
