"""The bank of the demo: its people and services, and the vocabulary of its applications."""

import tomllib
from csv import DictReader
from pathlib import Path
from random import Random
from typing import Any, Final

# Imported by `annals people import` too; the login of a service is its client id.
PEOPLE: Final = Path(__file__).with_name("people.csv")
with PEOPLE.open(encoding="utf-8") as _rows:
    STAFF: Final = tuple(row["login"] for row in DictReader(_rows) if row["kind"] == "person")

# They are not in PEOPLE: the product must show a login that it does not know.
NEWCOMERS: Final = ("v.novikova", "d.andreev2")

# The services that change documents.
ACTUALIZATOR: Final = "top-data-client-actualizator"
REGISTRAR: Final = "top-encumbrance-registrar"
RECOGNIZER: Final = "top-document-recognizer"
DISPATCHER: Final = "top-task-dispatcher"
RATES: Final = "top-rate-calculator"
CRM: Final = "top-crm-sync"
ARCHIVE: Final = "top-archive-keeper"

# The front ends that people use: the client id is the front end's, the author is the person.
FRONT_ENDS: Final = ("top-front-office", "top-partner-portal", "top-underwriting-desk")


_BANK: Final = tomllib.loads(Path(__file__).with_name("bank.toml").read_text(encoding="utf-8"))
Rows = list[list[str]]
EMPLOYERS: Final[list[str]] = _BANK["employers"]
BRANCHES: Final[Rows] = _BANK["branches"]
# By kind of loan.
OFFERS: Final[dict[str, list[list[Any]]]] = _BANK["offers"]
WORKFLOW: Final[Rows] = _BANK["workflow"]
OUTCOMES: Final[Rows] = _BANK["outcomes"]
PAPERS: Final[Rows] = _BANK["papers"]
TASKS: Final[Rows] = _BANK["tasks"]
REALTY: Final[list[str]] = _BANK["realty"]
CARS: Final[Rows] = _BANK["cars"]
SENTENCES: Final[list[str]] = _BANK["sentences"]
_SIZED: Final = tuple((text, len(text.encode()) + 1) for text in SENTENCES)


def full_name(rng: Random) -> tuple[str, str, str]:
    """Surname, name and patronymic that agree in gender."""
    surname, father = rng.choice(_BANK["surnames"]), rng.choice(_BANK["fathers"])
    if rng.random() < 0.5:
        return surname, rng.choice(_BANK["men"]), father + "ич"
    return surname + "а", rng.choice(_BANK["women"]), father + "на"


def remark(rng: Random, size: int) -> str:
    """A remark as a clerk writes it: `size` bytes of UTF-8, or less by one word at most."""
    said: list[str] = []
    left = size
    while left > 0:
        text, length = _SIZED[int(rng.random() * len(_SIZED))]
        said.append(text)
        left -= length
    whole = " ".join(said).encode()
    if len(whole) <= size:
        return whole.decode()
    kept = whole[: size + 1].rpartition(b" ")[0]
    return kept.decode().rstrip(",:") if kept else ""


def phone(rng: Random) -> str:
    number = int(rng.random() * 10**9)
    return f"+79{number:09d}"


def address(rng: Random) -> str:
    city, street = rng.choice(_BANK["cities"])
    return f"{city}, {street}, д. {1 + rng.getrandbits(6)}, кв. {1 + rng.getrandbits(8)}"
