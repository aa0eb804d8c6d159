"""Programs other than Python that a test needs. Without one the test is skipped.

`.ci/run` installs all of them and sets ANNALS_TEST_ALL=1: then the test fails instead.
"""

import os
import re
import shutil
import subprocess
from functools import partial
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


def chromium() -> str:
    """The Chromium program."""
    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if program is None:
        _missing("needs Chromium (Debian: chromium)")
    return program


def program(name: str, package: str = "") -> str:
    """The path of a program. package: of Debian, if it has another name."""
    # Debian has servers in a folder that not everybody's PATH has.
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        _missing(f"needs {name} (Debian: {package or name})")
    return found


def node() -> None:
    """Node.js with npm, for a certified OpenID provider."""
    program("node", "nodejs")
    program("npm")


# To evaluate the alert rules, for the proxy of docker/compose.yaml, and as the
# API's page uses it.
promtool = partial(program, "promtool", "prometheus")
nginx = partial(program, "nginx", "nginx-light")
curl = partial(program, "curl")
go = partial(program, "go", "golang-go")


def _missing(reason: str) -> NoReturn:
    if os.environ.get("ANNALS_TEST_ALL") == "1":
        pytest.fail(f"{reason}; ANNALS_TEST_ALL=1 allows no skip", pytrace=False)
    pytest.skip(reason)
