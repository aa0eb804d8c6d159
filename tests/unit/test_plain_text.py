"""In files for spreadsheets, a text that would be a formula gets an apostrophe in front."""

import csv
import io

import pytest

from history.common.plain_text import escape_formulas


@pytest.mark.parametrize(
    "text",
    [
        "+79161234567",
        "+7 (916) 123-45-67",
        "+7-916-123-45-67",
        "+7 916 123-45-67 доб. 12",
        "+79161234567, +79161234568",
        "8 (916) 123-45-67",
        "-5",
        "+3",
        "-17.90",
        "-1 000,50",
        "-1\N{NO-BREAK SPACE}000,50 ₽",
        "-12.5 %",
        "-1.5E+10",
        "-5 дней",
        "-",
        "--",
        "a - b = c",
        "2026-11-26",
        "a, -5",
        "тел.; +79161234567",
        "x\n+7(916)1234567",
        "text\n- item\n- item (x)\n= sum",
        "\ta text",
        "",
    ],
)
def test_text_that_spreadsheets_do_not_read_as_a_formula_is_not_changed(text: str) -> None:
    assert escape_formulas(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        " =1+1",
        "＝1+1",
        "\t=1",
        "@sum(1)",
        "+A1",
        "-A1",
        "-SUM(A1)",
        "+7+SUM(A1)",
        "+2*3",
        "-2+3",
        "-1-2",
        "- item",
        "+cmd|' /C calc'!A0",
        "-5 A1!B2",
        "+" + "9" * 200,
    ],
)
def test_text_that_spreadsheets_read_as_a_formula_gets_an_apostrophe_in_front(text: str) -> None:
    assert escape_formulas(text) == f"'{text}"


@pytest.mark.parametrize(
    "text",
    [
        "x;=cmd|' /C calc'!A0;",
        'x\n=HYPERLINK("http://evil";"click")',
        "x, @sum(1)",
        "x\t+LOG10(1)",
        "x\r-'[a.xlsx]b'!$A1",
        "x;='file:///etc/passwd'#$passwd.A1",
    ],
)
def test_csv_file_has_no_formula_even_when_read_with_a_different_separator(text: str) -> None:
    file = io.StringIO()
    csv.writer(file, delimiter=";").writerow([escape_formulas(text), "last"])
    for separator in ";,\t|":
        for row in csv.reader(io.StringIO(file.getvalue()), delimiter=separator):
            assert not any(cell.strip().startswith(tuple("=+-@")) for cell in row), separator


@pytest.mark.parametrize(
    "text", ["+1" + " " * 30_000, "\n" * 30_000, ",=(" * 9_000, ";='!" * 9_000]
)
def test_escaping_formulas_takes_linear_time_for_long_text(text: str) -> None:
    """Quadratic time would take minutes."""
    assert escape_formulas(text * 4)
