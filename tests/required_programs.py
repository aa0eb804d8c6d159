"""Finds programs except Python that a test needs. If a program is missing, the test is skipped.

`.ci/run` installs all programs and sets ANNALS_TEST_ALL=1. Then a missing program fails the test.
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


def need_java() -> str:
    """Return the Java program, version 17 or later."""
    try:
        program = broker.find_java()
    except EmbeddedError:
        _skip_or_fail(f"needs Java {JAVA_VERSION} or later (Debian: default-jre-headless)")
    version_text = subprocess.run(
        [program, "-version"], capture_output=True, text=True, check=True
    ).stderr
    version = re.search(r'version "(\d+)', version_text)
    if version is None or int(version[1]) < JAVA_VERSION:
        _skip_or_fail(f"needs Java {JAVA_VERSION} or later, found: {version_text.splitlines()[0]}")
    return program


def need_maven() -> None:
    """Skip the test if Maven is missing, unless the jars of Apache Kafka are in the cache."""
    if not kafka_jars.is_cached() and shutil.which("mvn") is None:
        _skip_or_fail("needs Maven to fetch Apache Kafka (Debian: maven)")


def need_chromium() -> str:
    """Return the Chromium program."""
    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if program is None:
        _skip_or_fail("needs Chromium (Debian: chromium)")
    return program


def need_program(name: str, package: str = "") -> str:
    """Return the path of a program.

    Args:
        package: The Debian package, if its name differs.
    """
    # Debian has servers in a folder that not everybody's PATH has.
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if path is None:
        _skip_or_fail(f"needs {name} (Debian: {package or name})")
    return path


def need_node() -> None:
    """Skip the test if Node.js or npm is missing. The certified OpenID provider needs both."""
    need_program("node", "nodejs")
    need_program("npm")


# promtool evaluates the alert rules. nginx is the proxy of docker/compose.yaml. docs/api.md uses
# curl.
promtool = partial(need_program, "promtool", "prometheus")
nginx = partial(need_program, "nginx", "nginx-light")
curl = partial(need_program, "curl")
go = partial(need_program, "go", "golang-go")


def _skip_or_fail(reason: str) -> NoReturn:
    if os.environ.get("ANNALS_TEST_ALL") == "1":
        pytest.fail(f"{reason}; ANNALS_TEST_ALL=1 allows no skip", pytrace=False)
    pytest.skip(reason)
