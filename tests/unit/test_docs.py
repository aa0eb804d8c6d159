"""The documentation names everything there is, and points at nothing that is not there."""

import re
from argparse import ArgumentParser
from pathlib import Path

import pytest

from annals import docs, env
from tests.apache import kafka_jars

ROOT = docs.DOCS.parent
PAGES = sorted(
    path for path in [*ROOT.glob("*.md"), *docs.DOCS.rglob("*.md")] if ".venv" not in path.parts
)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


@pytest.mark.parametrize("name", docs.PAGES)
def test_written_pages_are_fresh(name: str) -> None:
    assert (docs.DOCS / name).read_text() == docs.PAGES[name](), "run scripts/lint"


def test_every_setting_has_its_row() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", docs.settings_page(), re.MULTILINE)
    assert rows == [env.variable(name) for name in env.Settings.__struct_fields__]


@pytest.mark.parametrize(
    "command",
    [
        *("consume", "partitions maintain", "quarantine retry", "ledger", "simulate"),
        *("people import", "journal", "breakglass"),
    ],
)
def test_every_command_of_the_contract_has_its_section(command: str) -> None:
    assert f"# annals {command}\n" in docs.commands_page()


def test_options_actions_and_words_of_a_command_are_all_written() -> None:
    parser = ArgumentParser("manage.py tell", description="Tell a story")
    parser.add_argument("--loud", action="store_true", help="so that|all hear")
    actions = parser.add_subparsers()
    short = actions.add_parser("short", help="a short one")
    short.add_argument("--lines", type=int, default=3, help="how many (default %(default)s)")
    short.add_argument("mood", choices=["gay", "sad"])
    text = "\n".join(docs._section(parser, "manage.py tell"))
    assert "## manage.py tell\n\nTell a story.\n" in text
    assert "| `--loud` | so that\\|all hear |" in text
    assert "### manage.py tell short\n\nA short one.\n" in text
    assert "| `--lines LINES` | how many (default 3) |" in text
    assert "`gay\\|sad`" in text
    assert "--help" not in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        path, _, _ = target.partition("#")
        if path and "://" not in path:
            assert (page.parent / path).exists(), f"{page.relative_to(ROOT)}: {target}"


def test_every_word_of_the_glossary_lives_in_a_file_that_exists() -> None:
    text = (docs.DOCS / "glossary.md").read_text()
    places = re.findall(r"^\| .* \| `([^`]+)` \|$", text, re.MULTILINE)
    assert len(places) >= 20
    assert [place for place in places if not (ROOT / place).exists()] == []


def test_the_map_of_changes_names_files_that_exist() -> None:
    text = (
        (ROOT / "CONTRIBUTING.md")
        .read_text()
        .partition("\n## To change X")[2]
        .partition("\n## ")[0]
    )
    rows = [line for line in text.splitlines() if line.startswith("| a")]
    assert len(rows) == 11
    places = re.findall(r"`([\w.]+/[\w./]+)`", "\n".join(rows))
    assert len(places) > 20
    assert [place for place in places if not (ROOT / place).exists()] == []


def test_the_index_leads_to_every_page() -> None:
    linked = set(LINK.findall((docs.DOCS / "index.md").read_text()))
    pages = {path.name for path in docs.DOCS.glob("*.md")} - {"index.md"}
    assert pages <= linked


def test_decisions_are_numbered_without_gaps_and_repeats() -> None:
    pages = sorted((docs.DOCS / "decisions").glob("[0-9]*.md"))
    assert len(pages) >= 9
    assert docs.numbering(page.name for page in pages) == []
    for page in pages:
        assert page.read_text().startswith(f"# {page.name[:4]} "), page.name


@pytest.mark.parametrize(
    "line, status",
    [
        ("", "in force"),
        ("Extended by [0003](0003-c.md): more.", "in force, extended by [0003](0003-c.md)"),
        ("Replaced by [0003](0003-c.md).", "replaced by [0003](0003-c.md)"),
        ("It is not Replaced by [0003](0003-c.md).", "in force"),
    ],
)
def test_the_list_of_decisions_has_their_status(tmp_path: Path, line: str, status: str) -> None:
    page = tmp_path / "0002-b.md"
    page.write_text(f"# 0002 A | b\n\nText.\n{line}\n")
    assert docs._decision(page) == f"| [0002](0002-b.md) | A \\| b | {status} |\n"


def test_a_decision_without_its_title_is_named(tmp_path: Path) -> None:
    page = tmp_path / "0002-b.md"
    page.write_text("# b\n")
    with pytest.raises(SystemExit, match=r"0002-b\.md must begin with `# 0002 title`"):
        docs._decision(page)


@pytest.mark.parametrize(
    "names, wrong", [(["0001-a", "0001-b"], "0001-b"), (["0001-a", "0003-c"], "0003-c")]
)
def test_a_repeated_or_skipped_number_of_a_decision_is_named(names: list[str], wrong: str) -> None:
    (fault,) = docs.numbering(reversed(names))
    assert f"{wrong}: its number should be 0002" in fault


def test_compose_runs_the_kafka_that_the_tests_ran_on() -> None:
    text = (ROOT / "docker/compose.yaml").read_text()
    [tag] = re.findall(r"image: apache/kafka:([^@\n]+)", text)
    assert tag == kafka_jars.VERSION


def test_every_test_that_the_threat_model_names_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (ROOT / "SECURITY.md").read_text())
    assert len(named) > 40
    missing = [
        (file, test) for file, test in named if f"\ndef {test}" not in (ROOT / file).read_text()
    ]
    assert missing == []


def test_every_row_of_the_threat_model_is_shown_by_a_test() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    rows = [
        line
        for part in text.split("\n\n")
        if part.startswith("| who wants what | what stops them | shown by |")
        for line in part.splitlines()[2:]
    ]
    assert len(rows) > 30
    assert [row for row in rows if "`tests/" not in row.split("|")[3]] == []


def test_the_russian_page_of_support_has_what_the_english_one_has() -> None:
    """As many sections, rows of tables and pictures."""

    def shape(name: str) -> list[str]:
        lines = (docs.DOCS / name).read_text().splitlines()
        return [line[:2] for line in lines if line.startswith(("#", "|", "!"))]

    assert shape("support.ru.md") == shape("support.md")
