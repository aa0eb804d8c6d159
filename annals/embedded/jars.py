"""Apache Kafka's jars, fetched from the Maven repository once and kept in the user's cache."""

import os
import shutil
import subprocess
from pathlib import Path

from annals.embedded import process
from annals.embedded.process import EmbeddedError

# docker/compose.yaml names the same version; a test compares them.
VERSION = "4.3.1"
ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", VERSION),
    # Kafka's jars log through slf4j and bring nothing that prints it.
    ("org.slf4j", "slf4j-simple", "1.7.36"),
)
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
PROJECT = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>annals</groupId>
  <artifactId>apache-kafka</artifactId>
  <version>1</version>
  <dependencies>
{}
  </dependencies>
</project>
"""
DEPENDENCY = (
    "    <dependency><groupId>{}</groupId><artifactId>{}</artifactId>"
    "<version>{}</version></dependency>"
)


def cached() -> bool:
    """Whether the jars are here already; Maven is not needed then."""
    return _folder().exists()


def fetch() -> Path:
    """The directory of the jars, fetched with Maven where they are not in the cache."""
    folder = _folder()
    with process.exclusive(folder.with_name("lock")):
        if not folder.exists():
            _copy_dependencies(folder)
    return folder


def _folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "annals" / f"apache-kafka-{VERSION}"


def _copy_dependencies(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise EmbeddedError("Apache Kafka's jars are fetched with Maven: install it (mvn)")
    draft = folder.with_name(folder.name + ".new")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    project = draft / "pom.xml"
    project.write_text(PROJECT.format("\n".join(DEPENDENCY.format(*one) for one in ARTIFACTS)))
    done = subprocess.run(
        [
            *(maven, "--batch-mode", "--quiet", "--strict-checksums", "--file", str(project)),
            *(PLUGIN, "-DincludeScope=runtime", f"-DoutputDirectory={draft}"),
        ],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise EmbeddedError(f"Maven could not fetch Apache Kafka:\n{done.stdout.strip()}")
    draft.rename(folder)
