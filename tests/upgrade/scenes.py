"""The two directions: the earlier release on new tables, and this release on old ones."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from history.schema import stops
from tests.consuming import ROOT, Running, complete, until
from tests.upgrade.earlier import migrations
from tests.upgrade.stand import Refused, Stand
from tests.upgrade.watch import Watch

CONSUMERS = 2
RATE = 300
SESSION_S = 10.0


@dataclass(frozen=True, slots=True)
class Scene:
    """stand: with the tables of the earlier release. say: prints a line. seconds: how long each
    phase lasts at least."""

    stand: Stand
    say: Callable[[str], None]
    seconds: float

    def start(self, root: Path) -> Running:
        """A consumer of a project, reading."""
        consumers = self.stand.consumers
        consumers.root = root
        running = consumers.start()
        running.until_reading()
        return running

    def stop_ahead(self) -> list[str]:
        """Migrations of this release that need a stop."""
        new = migrations(ROOT) - migrations(self.stand.earlier)
        return [f"{app}.{name}" for app, name in stops(new)]

    @contextmanager
    def phase(self, watch: Watch, name: str) -> Iterator[None]:
        """One phase, with a figure at its end."""
        watch.phase = name
        before = self.stand.database.read()
        yield
        time.sleep(self.seconds)
        until(lambda: self.stand.database.read() > before, f"nothing is read: {name}")
        pauses, statuses = watch.pauses[name], dict(watch.statuses[name])
        self.say(
            f"{name}: longest pause of the group {pauses.group:.2f} s, of one partition "
            f"{pauses.partition:.2f} s; answers {statuses}"
        )

    def finish(self, running: list[Running]) -> None:
        """Nothing is lost and nothing twice."""
        database, feed = self.stand.database, self.stand.feed
        until(lambda: database.read() == feed.produced.total(), running[0].said, 120)
        for each in running:
            each.terminate(10)
        complete(self.stand.consumers, database, feed)
        self.say(f"{feed.produced.total()} messages produced, each stored once; the ledger adds up")


def earlier_code_on_new_tables(scene: Scene) -> Watch:
    """Migrate under load, then replace the processes one by one, and back again."""
    stand, watch = scene.stand, Watch()
    with ExitStack() as stack:
        old_web = stack.enter_context(stand.web(stand.earlier))
        running = [scene.start(stand.earlier) for _ in range(CONSUMERS)]
        stack.enter_context(stand.feed.pouring(RATE))
        until(lambda: stand.database.read() > 2 * RATE, "nothing is read")
        watch.web = old_web
        stack.enter_context(watch.looking(stand.database.url))
        with scene.phase(watch, "before"):
            pass
        with scene.phase(watch, "migrate, grants --apply"):
            if scene.stop_ahead():
                running = _with_a_stop(scene, running)
            stand.tables(ROOT)
        roots = [ROOT] if scene.stop_ahead() else [stand.earlier, ROOT, stand.earlier, ROOT]
        for number, root in enumerate(roots):
            release = "this" if root is ROOT else "the earlier"
            with scene.phase(watch, f"{number + 1}: consumers, one by one, of {release} release"):
                for place in range(CONSUMERS):
                    running[place].terminate(10)
                    running[place] = scene.start(root)
                    time.sleep(scene.seconds)
        with scene.phase(watch, "web of this release"):
            watch.web = stack.enter_context(stand.web(ROOT))
        if not scene.stop_ahead():
            with scene.phase(watch, "web of the earlier release again"):
                watch.web = stack.enter_context(stand.web(stand.earlier, "/healthz"))
        watch.phase = "end"
        watch.web = None
        stack.close()
        scene.finish(running)
    return watch


def _with_a_stop(scene: Scene, running: list[Running]) -> list[Running]:
    """migrate refuses as long as consumers run; then they are ended."""
    with pytest.raises(Refused, match="needs a stop") as refusal:
        scene.stand.manage(ROOT, "migrate", "--verbosity", "0")
    scene.say(f"refused: {str(refusal.value).splitlines()[-1]}")
    for each in running:
        each.terminate(10)
    scene.stand.tables(ROOT)
    return [scene.start(ROOT) for _ in range(CONSUMERS)]


def this_code_on_old_tables(scene: Scene) -> None:
    """A consumer says why it does not start, the others go on; a web waits for the migrations."""
    stand = scene.stand
    running = [scene.start(stand.earlier)]
    with stand.feed.pouring(RATE), stand.web(ROOT, "/healthz") as web:
        stand.consumers.root = ROOT
        early = stand.consumers.start()
        until(lambda: early.process.poll() is not None, "it starts on old tables")
        assert early.process.returncode == 1
        assert "Run `annals migrate` and `annals grants --apply`" in early.said(), early.said()
        scene.say(f"consumer: {early.said().strip().splitlines()[-1]}")
        before = stand.database.read()
        until(lambda: stand.database.read() > before + RATE, running[0].said)
        answers = {path: web.get(path) for path in ("/api/v1/completeness", "/admin/", "/readyz")}
        assert {answer.status for answer in answers.values()} == {503}
        assert all("retry-after" in answers[path].headers for path in list(answers)[:2])
        scene.say(f"web: 503 {answers['/api/v1/completeness'].body.decode()}")
        if scene.stop_ahead():
            running = _with_a_stop(scene, running)
        stand.tables(ROOT)
        until(lambda: web.get("/readyz").status == 200, web.log.read_text)
        assert web.get("/api/v1/completeness").status == 200
        scene.say("web: serves after migrate, without a restart")
        running.append(scene.start(ROOT))
        time.sleep(scene.seconds)
    scene.finish(running)
