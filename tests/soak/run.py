"""The hour: days that pass, load on all of them, two restarts; then the end, and what was found."""

import random
import time
import traceback
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from annals.embedded import logins
from tests.soak.logs import Restarts
from tests.soak.people import People
from tests.soak.recorder import Recorder
from tests.soak.samples import Sampler
from tests.soak.stand import Stand
from tests.soak.traffic import BAD_TOPIC, BURST, Traffic

DAYS = 24
# More documents than two consumers remember; a short run sends fewer.
FILLED, FILLED_PER_SECOND = 240_000, 67
SHORTEST_DAY_S = 20
PEOPLE = 2
# When the servers are restarted, as a share of the run.
DATABASE_AT, BROKER_AT = 0.35, 0.55
TREES = frozenset({"web", "postgres"})


@dataclass
class Result:
    """faults: a sentence for everything that is wrong. facts: what is worth knowing, in order."""

    faults: list[str] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)
    sampler: Sampler | None = None


class Soak:
    """One run in a folder. Call run() once."""

    def __init__(self, home: Path, minutes: float) -> None:
        self.stand = Stand(home)
        self.seconds = minutes * 60
        self.day = max(self.seconds / DAYS, SHORTEST_DAY_S)
        self.restarts = Restarts()
        self.result = Result()
        self.codes: list[tuple[str, int]] = []

    def run(self) -> Result:
        """Never raises; everything is in the result."""
        codes: dict[str, int] = {}
        try:
            self.stand.start()
            self._live()
            from tests.soak.ending import end

            end(self)
        except Exception as error:
            traceback.print_exc()
            self.result.faults.append(f"the run broke off: {type(error).__name__}: {error}")
        finally:
            codes = self.stand.close()
            if self.result.sampler is not None:
                self.result.sampler.stop()
        self.result.faults += [f"{name} ended with {code}" for name, code in codes.items() if code]
        return self.result

    def _live(self) -> None:
        stand = self.stand
        self.traffic = Traffic(stand)
        self.recorder = Recorder(stand.broker.bootstrap_servers(), stand.postgres.url())
        self.recorder.start()
        self.traffic.fill(min(FILLED, round(self.seconds * FILLED_PER_SECOND)))
        self.people = [People(stand.address, self.recorder.recent, seed) for seed in range(PEOPLE)]
        for each in self.people:
            each.start()
        pause = min(max(self.seconds / 360, 1.0), 10.0)
        self.result.sampler = Sampler(self._watched, TREES, pause)
        self.result.sampler.start()
        begin, restarts = time.monotonic(), {"database": DATABASE_AT, "broker": BROKER_AT}
        moments = random.Random(1)
        while (gone := time.monotonic() - begin) < self.seconds:
            day = time.monotonic()
            length = min(self.day, max(self.seconds - gone, SHORTEST_DAY_S))
            before = self.recorder.messages
            self.traffic.pace(length)
            self.traffic.burst()
            for name, at in list(restarts.items()):
                if gone >= at * self.seconds:
                    self._await_load(before)
                    time.sleep(moments.uniform(1, 3))
                    self._restart(name)
                    del restarts[name]
            self.chores()
            self.traffic.strange(stand.clock.now())
            self._say(f"day {stand.clock.days + 1}")
            while time.monotonic() - day < length:
                time.sleep(0.2)
            stand.clock.next_day()
        if restarts:
            self.result.faults.append(f"too short for a restart of {', '.join(restarts)}")

    def _await_load(self, before: int) -> None:
        """Until the simulators of the day have started, which takes long on a busy machine: without
        a broker they cannot."""
        deadline = time.monotonic() + 120
        while self.recorder.messages < before + BURST + 1 and time.monotonic() < deadline:
            time.sleep(0.2)

    def chores(self) -> None:
        """What a night does: partitions, seals, the archive, the quarantine. What came too early
        yesterday is good today; nothing else in quarantine ever will be."""
        self.manage("partitions", "maintain", fine=(0, 1))
        self.manage("partitions", "verify")
        self.manage("partitions", "verify", "--archive")
        self.manage("quarantine", "retry", "--now", login=logins.CONSUMER)
        self.manage(
            *("quarantine", "discard", "--topic", BAD_TOPIC, "--why", "soak"), login=logins.CONSUMER
        )

    def manage(self, *words: str, login: str = logins.OWNER, fine: tuple[int, ...] = (0,)) -> str:
        done = self.stand.manage(*words, login=login)
        name = " ".join(words[:2])
        self.codes.append((name, done.code))
        if done.code not in fine:
            said = " ".join((done.out + done.said).split())[-400:]
            self.result.faults.append(f"{name} ended with {done.code}: {said}")
        return done.out

    def _restart(self, name: str) -> None:
        begin = datetime.now(UTC) - timedelta(seconds=1)
        server = self.stand.postgres if name == "database" else self.stand.broker
        server.stop(timeout=300)
        server.start(timeout=300)
        self.restarts.times.append((name, begin, datetime.now(UTC)))
        self.result.facts.append(
            (f"restart of the {name}", f"{(datetime.now(UTC) - begin).total_seconds() - 1:.1f} s")
        )

    def _watched(self) -> dict[str, int | None]:
        children = {
            name: child.pid
            for name, child in list(self.stand.children.items())
            if not name.startswith("simulate")
        }
        return {
            **children,
            "postgres": self.stand.postgres.pid(),
            "broker": self.stand.broker.pid(),
        }

    def _say(self, what: str) -> None:
        print(
            f"{datetime.now(UTC):%H:%M:%S} {what}: {self.recorder.messages:,} messages read, "
            f"{len(self.recorder.versions):,} versions, faults {self.result.faults[-1:]}",
            flush=True,
        )
        known = set(self.result.faults)
        self.result.faults += [each for each in self.stand.dead() if each not in known]
