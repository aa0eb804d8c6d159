"""The documentation is complete, and the links, files, tests and versions that it names exist."""

import re
from hashlib import sha256
from pathlib import Path

import pytest
import yaml
from packaging.version import Version

import annals
import outbox
from scripts import pages as docs
from tests.consuming import ROOT
from tests.upgrade import release

PAGES = sorted(
    path for path in [*ROOT.glob("*.md"), *docs.DOCS.rglob("*.md")] if ".venv" not in path.parts
)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


@pytest.mark.parametrize("name", docs.PAGES)
def test_generated_pages_are_fresh(name: str) -> None:
    assert (docs.DOCS / name).read_text() == docs.PAGES[name](), "run scripts/lint"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_in_documentation_lead_to_existing_files(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        path, _, _ = target.partition("#")
        if path and "://" not in path:
            assert (page.parent / path).exists(), f"{page.relative_to(ROOT)}: {target}"


@pytest.mark.parametrize("page", ["README.md", "docs/contract.md", "docs/api.md", "docs/kinds.md"])
def test_page_about_exact_numbers_links_its_decision(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert "decisions/0010-exact-documents.md" in text
    assert not re.search(r"[Nn]umbers\b[^.]{0,40}\bas (it|they) (was|were|came)", text)


def test_glossary_names_existing_files() -> None:
    text = (docs.DOCS / "glossary.md").read_text()
    places = re.findall(r"`([\w./]+/[\w.]*)`", text)
    assert len(places) >= 20
    assert [place for place in places if not (ROOT / place).exists()] == []


def test_glossary_names_existing_classes() -> None:
    text = (docs.DOCS / "glossary.md").read_text()
    code = "".join(
        path.read_text() for app in ("history", "ingest") for path in (ROOT / app).rglob("*.py")
    )
    classes = re.findall(r"class `(\w+)`", text)
    assert len(classes) >= 10
    assert [
        name for name in classes if not re.search(rf"^class {name}\b", code, re.MULTILINE)
    ] == []


def test_files_in_tables_of_structure_page_exist() -> None:
    files = re.findall(
        r"^\| `([\w/]+\.py)` \|", (docs.DOCS / "structure.md").read_text(), re.MULTILINE
    )
    assert len(files) > 25
    assert [file for file in files if not (ROOT / file).exists()] == []


def test_index_of_documentation_links_each_page() -> None:
    linked = set(LINK.findall((docs.DOCS / "index.md").read_text()))
    pages = {path.name for path in docs.DOCS.glob("*.md")} - {"index.md"}
    assert pages <= linked


def test_decisions_have_consecutive_numbers() -> None:
    pages = sorted((docs.DOCS / "decisions").glob("[0-9]*.md"))
    assert len(pages) >= 9
    assert docs.check_numbering(page.name for page in pages) == []
    for page in pages:
        assert page.read_text().startswith(f"# {page.name[:4]} "), page.name


def test_threat_model_names_existing_tests() -> None:
    name_row = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (ROOT / "SECURITY.md").read_text())
    assert len(name_row) > 40
    missing = [
        (file, test) for file, test in name_row if f"\ndef {test}" not in (ROOT / file).read_text()
    ]
    assert missing == []


IMAGES = Path(__file__).parents[2] / "docs/images"
TEXTS = sorted(IMAGES.glob("*.dot"))


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.stem)
def test_each_picture_was_drawn_from_the_present_text_of_its_dot_file(text: Path) -> None:
    drawn_from = f"sha256 {sha256(text.read_bytes()).hexdigest()} -->"
    picture = text.with_suffix(".svg").read_text(encoding="utf-8")
    assert drawn_from in picture, f"{text.name} was changed: run scripts/draw"
    # A browser shows the picture as part of a page, so it must not load or run anything.
    assert "<script" not in picture
    assert "href" not in picture.replace("xlink", "").split("<g", 1)[1]


NOW = Version(annals.__version__)


def test_version_of_the_code_is_the_last_release_or_the_next_release() -> None:
    last = Version(release.get_last_release())
    assert last < NOW if NOW.is_devrelease else last == NOW
    assert ("\n## Unreleased\n" in (ROOT / "CHANGELOG.md").read_text()) is NOW.is_devrelease


def test_outbox_package_has_the_version_of_annals() -> None:
    assert outbox.__version__ == annals.__version__


def test_helm_chart_installs_the_image_of_this_version() -> None:
    chart = yaml.safe_load((ROOT / "docker/helm/annals/Chart.yaml").read_text())
    assert chart["appVersion"] == annals.__version__
    assert chart["version"] == annals.__version__.replace(".dev", "-dev")  # Helm wants SemVer


def test_installation_page_names_this_version() -> None:
    page = (ROOT / "docs/install.md").read_text()
    assert set(re.findall(r"annals-([0-9][^-`\s]*)", page)) == {annals.__version__}
