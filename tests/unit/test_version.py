"""The number of this release, or of the next one with .dev0, is the same wherever it is written."""

from __future__ import annotations

import re

import yaml
from packaging.version import Version

import annals
import outbox
from tests.consuming import ROOT
from tests.upgrade import release

NOW = Version(annals.__version__)


def test_it_is_the_last_release_or_one_after_it() -> None:
    last = Version(release.last())
    assert last < NOW if NOW.is_devrelease else last == NOW
    assert ("\n## Unreleased\n" in (ROOT / "CHANGELOG.md").read_text()) is NOW.is_devrelease


def test_the_outbox_has_it_too() -> None:
    assert outbox.__version__ == annals.__version__


def test_the_chart_installs_this_image() -> None:
    chart = yaml.safe_load((ROOT / "docker/helm/annals/Chart.yaml").read_text())
    assert chart["appVersion"] == annals.__version__
    assert chart["version"] == annals.__version__.replace(".dev", "-dev")  # Helm wants SemVer


def test_the_page_of_the_installation_names_it() -> None:
    page = (ROOT / "docs/install.md").read_text()
    assert set(re.findall(r"annals-([0-9][^-`\s]*)", page)) == {annals.__version__}
