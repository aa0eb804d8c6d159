"""Programs other than Python that a test needs. A test without its program is skipped.

`.ci/run` installs all of them and sets ANNALS_TEST_ALL=1; then the test fails instead.
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
    """Require Maven, or Apache Kafka's jars from an earlier run of it."""
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
    """Require Node.js with npm, for a certified OpenID provider."""
    need_program("node", "nodejs")
    need_program("npm")


# To evaluate the alert rules, for the proxy of docker/compose.yaml, and as the
# API's page uses it.
promtool = partial(need_program, "promtool", "prometheus")
nginx = partial(need_program, "nginx", "nginx-light")
curl = partial(need_program, "curl")
go = partial(need_program, "go", "golang-go")


def _skip_or_fail(reason: str) -> NoReturn:
    if os.environ.get("ANNALS_TEST_ALL") == "1":
        pytest.fail(f"{reason}; ANNALS_TEST_ALL=1 allows no skip", pytrace=False)
    pytest.skip(reason)
