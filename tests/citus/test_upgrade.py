"""An upgrade of a cluster from an earlier release to this one."""

import json
import os
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from pytest_django import DjangoDbBlocker

from annals.embedded.broker import EmbeddedBroker
from history.common import clock
from history.store import distribution
from tests.citus.cluster import Citus, create_database, use_database
from tests.citus.cluster_fixtures import set_clock
from tests.consuming import ROOT
from tests.db.commands import run_command
from tests.db.partitioned import few_days, retire_all_topics
from tests.kafka.fixtures import embedded
from tests.system.test_upgrade import has_history, list_lost_answers
from tests.upgrade import earlier, keep, release
from tests.upgrade.release import KeptRelease, ReleaseCommandError

__all__ = ["embedded", "few_days", "set_clock"]

NO_BROKER = {"KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
# The last commit that can distribute the tables, but does not pack the days of a cluster and does
# not list the children of applications.
EARLIER_CLUSTER = "a6bac2ff"
SHARDS = ("--shards", "4")
# The earlier code packs this day on a single server, and distributes it afterwards.
PACKED = (clock.now() - timedelta(days=3)).date()


@pytest.fixture
def empty_cluster(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Citus]:
    """An empty database on every node of a cluster. Commands in this process use the database."""
    with (
        create_database(os.environ["ANNALS_TEST_CITUS"]) as cluster,
        django_db_blocker.unblock(),
        use_database(cluster.url),
    ):
        yield cluster


def maintain() -> dict[str, Any]:
    """Run `partitions maintain` in this process, and return its JSON output."""
    ran = run_command("partitions", "maintain", "--json")
    assert ran.code == 0, (ran.out, ran.err)
    result: dict[str, Any] = json.loads(ran.out)
    assert result["broken"] == []
    return result


@pytest.mark.parametrize("name", release.list_kept_releases())
def test_answers_of_earlier_release_are_the_same_after_upgrade_and_distribution(
    name: str,
    empty_cluster: Citus,
    few_days: None,
    set_clock: Callable[[datetime], None],
    tmp_path: Path,
) -> None:
    """Release 0.1.0 had no `distribute`. So its tables are distributed after `migrate`."""
    kept_answers = json.loads(release.read_release_file(name, "json"))
    addresses = kept_answers["answers"]
    empty_cluster.connect().execute(release.read_release_file(name, "sql"))
    current_release = KeptRelease(ROOT, empty_cluster.url, tmp_path, NO_BROKER)
    current_release.env["ASKED_AT"] = release.get_end_of_day(name)
    current_release.run_command("migrate", "--verbosity", "0")
    assert list_lost_answers(current_release.fetch_answers(*addresses), addresses) == []
    retire_all_topics()
    answers = current_release.fetch_answers(*addresses)
    current_release.run_command("distribute", *SHARDS)
    assert current_release.fetch_answers(*addresses) == answers
    current_release.run_command("search", "index")
    assert current_release.fetch_answers(*addresses) == answers
    distribution.forget_answer(connection.connection)  # as in a new process
    set_clock(datetime.fromisoformat(release.get_end_of_day(name)) + timedelta(days=3))
    assert maintain()["packed"] != []
    assert current_release.fetch_answers(*addresses) == answers
    assert current_release.read_ledger() == kept_answers["ledger"]


def load_applications(loaded: KeptRelease, seed: int, days: int = 5) -> None:
    """Simulate eight applications over the last days, and store them."""
    simulated = ("--applications", "8", "--rps", "0", "--days", str(days), "--seed", str(seed))
    loaded.run_command("simulate", *simulated)
    loaded.run_command("consume", "--until-idle", "3")


@pytest.mark.skipif(not has_history(), reason="needs the history of the repository")
def test_answers_of_cluster_are_the_same_after_upgrade_from_earlier_code(
    empty_cluster: Citus,
    embedded: EmbeddedBroker,
    tmp_path: Path,
) -> None:
    """The earlier code packed one of the days before it distributed the tables."""
    env = {
        "KAFKA_BOOTSTRAP_SERVERS": embedded.get_bootstrap_servers(),
        "ANNALS_RETENTION_DAYS": "6",
        "ANNALS_AHEAD_DAYS": "1",
    }
    code = earlier.unpack_release(EARLIER_CLUSTER, tmp_path / "code")
    earlier_release = KeptRelease(code, empty_cluster.url, tmp_path / "home", env)
    current_release = KeptRelease(ROOT, empty_cluster.url, tmp_path / "home", env)
    earlier_release.run_command("migrate", "--verbosity", "0")
    earlier_release.run_command("partitions", "maintain")
    load_applications(earlier_release, seed=1)
    earlier_release.run_command("partitions", "pack", str(PACKED))
    earlier_release.run_command("distribute", *SHARDS)
    # The consumer of the earlier code cannot store versions of a packed day on a cluster.
    load_applications(earlier_release, seed=2, days=2)
    earlier_release.run_command("gaps")
    addresses = keep.list_addresses(empty_cluster.url)
    assert len(addresses) > 16
    earlier_answers = earlier_release.fetch_answers(*addresses)
    for answer in earlier_answers.values():
        del answer["completeness"]  # depends on the moment of the request
    ledger = earlier_release.read_ledger()

    with pytest.raises(ReleaseCommandError, match="lacks migrations of this release"):
        current_release.run_command("consume", "--until-idle", "1")
    current_release.run_command("migrate", "--verbosity", "0")
    current_release.run_command("distribute")
    current_answers = current_release.fetch_answers(*addresses)
    assert list_lost_answers(current_answers, earlier_answers) == []
    retire_all_topics()
    current_release.env["ASKED_AT"] = clock.now().isoformat()
    answers = current_release.fetch_answers(*addresses)
    current_release.run_command("search", "index")
    assert current_release.fetch_answers(*addresses) == answers
    result = json.loads(current_release.run_command("partitions", "maintain", "--json"))
    assert (result["broken"], result["packing_waits"]) == ([], "")
    assert result["packed"] != []
    assert current_release.fetch_answers(*addresses) == answers
    assert current_release.read_ledger() == ledger
    current_release.run_command("partitions", "unpack", "--all")
    assert current_release.fetch_answers(*addresses) == answers
    load_applications(current_release, seed=3)
    assert current_release.fetch_answers(*addresses) == answers
    stored = sum(row["stored"] for row in current_release.read_ledger())
    assert stored > sum(row["stored"] for row in ledger)
