"""One soak: load on all days, a restart of the database and of the broker, and the final counts."""

import random
import time
import traceback
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from annals.embedded import logins
from tests.soak.logs import RestartTimes
from tests.soak.people import PersonThread
from tests.soak.recorder import MessageRecorder
from tests.soak.samples import Sampler
from tests.soak.stand import SoakStand
from tests.soak.traffic import BAD_TOPIC, BURST_MESSAGES, SoakTraffic

DAYS = 24
# How many documents fill the fingerprint caches of two consumers. A short run sends fewer.
FILLED, FILLED_PER_SECOND = 240_000, 67
SHORTEST_DAY_S = 20
PEOPLE = 2
# When the database and the broker are restarted, as a share of the run.
DATABASE_AT, BROKER_AT = 0.35, 0.55
TREES = frozenset({"web", "postgres"})


@dataclass
class SoakResult:
    """What a soak found."""

    faults: list[str] = field(default_factory=list)  # a sentence for each fault
    facts: list[tuple[str, str]] = field(default_factory=list)  # lines of the report, in order
    sampler: Sampler | None = None


class Soak:
    """One run in a folder. Call run_to_end() once."""

    def __init__(self, home: Path, minutes: float) -> None:
        self.stand = SoakStand(home)
        self.seconds = minutes * 60
        self.day = max(self.seconds / DAYS, SHORTEST_DAY_S)
        self.restarts = RestartTimes()
        self.result = SoakResult()
        self.codes: list[tuple[str, int]] = []

    def run_to_end(self) -> SoakResult:
        """Run to the end, and return the result, which also has the error if the run failed."""
        codes: dict[str, int] = {}
        try:
            self.stand.start_all()
            self._run_days()
            from tests.soak.final_counts import end_soak

            end_soak(self)
        except Exception as error:
            traceback.print_exc()
            self.result.faults.append(f"the run broke off: {type(error).__name__}: {error}")
        finally:
            codes = self.stand.stop_all()
            if self.result.sampler is not None:
                self.result.sampler.stop_sampling()
        self.result.faults += [f"{name} ended with {code}" for name, code in codes.items() if code]
        return self.result

    def _run_days(self) -> None:
        stand = self.stand
        self.traffic = SoakTraffic(stand)
        self.recorder = MessageRecorder(
            stand.broker.get_bootstrap_servers(), stand.postgres.build_url()
        )
        self.recorder.start_recording()
        self.traffic.fill_memory(min(FILLED, round(self.seconds * FILLED_PER_SECOND)))
        self.people = [
            PersonThread(stand.address, self.recorder.list_recent, seed) for seed in range(PEOPLE)
        ]
        for person in self.people:
            person.start()
        pause = min(max(self.seconds / 360, 1.0), 10.0)
        self.result.sampler = Sampler(self._list_watched, TREES, pause)
        self.result.sampler.start_sampling()
        begin, restarts = time.monotonic(), {"database": DATABASE_AT, "broker": BROKER_AT}
        random_source = random.Random(1)
        while (elapsed := time.monotonic() - begin) < self.seconds:
            day = time.monotonic()
            length = min(self.day, max(self.seconds - elapsed, SHORTEST_DAY_S))
            messages_before = self.recorder.messages
            self.traffic.send_at_pace(length)
            self.traffic.send_burst()
            for name, share in list(restarts.items()):
                if elapsed >= share * self.seconds:
                    self._wait_for_load(messages_before)
                    time.sleep(random_source.uniform(1, 3))
                    self._restart_server(name)
                    del restarts[name]
            self.do_nightly_work()
            self.traffic.send_strange(stand.clock.get_now())
            self._print_progress(f"day {stand.clock.days + 1}")
            while time.monotonic() - day < length:
                time.sleep(0.2)
            stand.clock.move_to_next_day()
        if restarts:
            self.result.faults.append(f"too short for a restart of {', '.join(restarts)}")

    def _wait_for_load(self, messages_before: int) -> None:
        """Wait up to two minutes until both simulators that were just started send messages.

        A restart of the broker must wait for this, because a simulator cannot start without broker.

        Args:
            messages_before: The number of recorded messages before the simulators were started.
        """
        deadline = time.monotonic() + 120
        while (
            self.recorder.messages < messages_before + BURST_MESSAGES + 1
            and time.monotonic() < deadline
        ):
            time.sleep(0.2)

    def do_nightly_work(self) -> None:
        """Run `maintain` and `verify`, retry the quarantine, and discard the rest of it.

        The retry stores the messages that came too early yesterday. The others never become good.
        """
        self.run_command("partitions", "maintain", allowed_codes=(0, 1))
        self.run_command("partitions", "verify")
        self.run_command("partitions", "verify", "--archive")
        self.run_command("quarantine", "retry", "--now", login=logins.CONSUMER)
        self.run_command(
            "quarantine", "discard", "--topic", BAD_TOPIC, "--why", "soak", login=logins.CONSUMER
        )

    def run_command(
        self, *arguments: str, login: str = logins.OWNER, allowed_codes: tuple[int, ...] = (0,)
    ) -> str:
        finished = self.stand.run_command(*arguments, login=login)
        name = " ".join(arguments[:2])
        self.codes.append((name, finished.code))
        if finished.code not in allowed_codes:
            output = " ".join((finished.out + finished.errors).split())[-400:]
            self.result.faults.append(f"{name} ended with {finished.code}: {output}")
        return finished.out

    def _restart_server(self, name: str) -> None:
        begin = datetime.now(UTC) - timedelta(seconds=1)
        server = self.stand.postgres if name == "database" else self.stand.broker
        server.stop(timeout=300)
        server.start(timeout=300)
        self.restarts.times.append((name, begin, datetime.now(UTC)))
        self.result.facts.append(
            (f"restart of the {name}", f"{(datetime.now(UTC) - begin).total_seconds() - 1:.1f} s")
        )

    def _list_watched(self) -> dict[str, int | None]:
        children = {
            name: child.pid
            for name, child in list(self.stand.children.items())
            if not name.startswith("simulate")
        }
        return {
            **children,
            "postgres": self.stand.postgres.find_pid(),
            "broker": self.stand.broker.find_pid(),
        }

    def _print_progress(self, subject: str) -> None:
        print(
            f"{datetime.now(UTC):%H:%M:%S} {subject}: {self.recorder.messages:,} messages read, "
            f"{len(self.recorder.versions):,} versions, faults {self.result.faults[-1:]}",
            flush=True,
        )
        known_faults = set(self.result.faults)
        self.result.faults += [
            fault for fault in self.stand.list_dead() if fault not in known_faults
        ]
