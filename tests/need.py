"""Programs other than Python that a test needs. Without one the test is skipped.

`.ci/run` installs all of them and sets ANNALS_TEST_ALL=1: then the test fails instead.
"""

import os
import re
import shutil
import subprocess
from typing import NoReturn

import pytest

from annals.embedded.process import EmbeddedError
from tests.apache import broker, kafka_jars

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
JAVA_VERSION = 17


def java() -> str:
    """The Java program, version 17 or later."""
    try:
        program = broker.java()
    except EmbeddedError:
        _missing(f"needs Java {JAVA_VERSION} or later (Debian: default-jre-headless)")
    said = subprocess.run([program, "-version"], capture_output=True, text=True, check=True).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < JAVA_VERSION:
        _missing(f"needs Java {JAVA_VERSION} or later, found: {said.splitlines()[0]}")
    return program


def maven() -> None:
    """Maven, or Apache Kafka's jars from an earlier run of it."""
    if not kafka_jars.cached() and shutil.which("mvn") is None:
        _missing("needs Maven to fetch Apache Kafka (Debian: maven)")


def maven_program(what: str) -> None:
    """Maven, to fetch something else."""
    if shutil.which("mvn") is None:
        _missing(f"needs Maven to fetch {what} (Debian: maven)")


def go() -> str:
    """The Go program."""
    program = shutil.which("go")
    if program is None:
        _missing("needs Go (Debian: golang-go)")
    return program


def chromium() -> str:
    """The Chromium program."""
    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if program is None:
        _missing("needs Chromium (Debian: chromium)")
    return program


def node() -> None:
    """Node.js with npm, for a certified OpenID provider."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        _missing("needs Node.js and npm (Debian: nodejs npm)")


def curl() -> None:
    """curl, as the API's page uses it."""
    if shutil.which("curl") is None:
        _missing("needs curl (Debian: curl)")


def promtool() -> str:
    """Prometheus' promtool."""
    program = shutil.which("promtool")
    if program is None:
        _missing("needs promtool to evaluate the alert rules (Debian: prometheus)")
    return program


def prometheus() -> str:
    """Prometheus itself."""
    program = shutil.which("prometheus")
    if program is None:
        _missing("needs Prometheus to try the dashboard (Debian: prometheus)")
    return program


def nginx() -> str:
    """nginx, the proxy of docker/compose.yaml."""
    program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        _missing("needs nginx (Debian: nginx-light)")
    return program


def program(name: str) -> None:
    """A program whose Debian package has its name."""
    if shutil.which(name) is None:
        _missing(f"needs {name} (Debian: {name})")


def _missing(reason: str) -> NoReturn:
    if os.environ.get("ANNALS_TEST_ALL") == "1":
        pytest.fail(f"{reason}; ANNALS_TEST_ALL=1 allows no skip", pytrace=False)
    pytest.skip(reason)
