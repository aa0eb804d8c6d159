"""The jars of Apache Kafka: fetched once from the Maven repository, kept in the user's cache."""

import os
import shutil
import subprocess
from pathlib import Path

from annals.embedded import process
from annals.embedded.process import EmbeddedError

# docker/compose.yaml has the same version; a test compares them.
VERSION = "4.3.1"
ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", VERSION),
    # Kafka logs through slf4j but has no implementation that prints the lines.
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
    """Whether the jars are in the cache, so that Maven is not needed."""
    return _folder().exists()


def fetch() -> Path:
    """The directory of the jars. Fetches them with Maven if they are not in the cache."""
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
        raise EmbeddedError("Fetching the jars of Apache Kafka needs Maven: install it (mvn)")
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
