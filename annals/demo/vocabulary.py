"""The people, services and vocabulary of the simulated bank."""

import tomllib
from csv import DictReader
from pathlib import Path
from random import Random
from typing import Any, Final

# A file for `annals people import`. The login of a service is its client id.
PEOPLE: Final = Path(__file__).with_name("people.csv")
with PEOPLE.open(encoding="utf-8") as _rows:
    STAFF: Final = tuple(row["login"] for row in DictReader(_rows) if row["kind"] == "person")

# Not in PEOPLE, to show how Annals displays a login without a name.
NEWCOMERS: Final = ("v.novikova", "d.andreev2")

# The services that change documents.
ACTUALIZATOR: Final = "top-data-client-actualizator"
REGISTRAR: Final = "top-encumbrance-registrar"
RECOGNIZER: Final = "top-document-recognizer"
DISPATCHER: Final = "top-task-dispatcher"
RATES: Final = "top-rate-calculator"
CRM: Final = "top-crm-sync"
ARCHIVE: Final = "top-archive-keeper"

# The front ends that people use. A change has the client id of one, and the person as author.
FRONT_ENDS: Final = ("top-front-office", "top-partner-portal", "top-underwriting-desk")


_BANK: Final = tomllib.loads(Path(__file__).with_name("bank.toml").read_text(encoding="utf-8"))
TextRows = list[list[str]]
EMPLOYERS: Final[list[str]] = _BANK["employers"]
BRANCHES: Final[TextRows] = _BANK["branches"]
# The products by kind of loan.
OFFERS: Final[dict[str, list[list[Any]]]] = _BANK["offers"]
WORKFLOW: Final[TextRows] = _BANK["workflow"]
OUTCOMES: Final[TextRows] = _BANK["outcomes"]
PAPERS: Final[TextRows] = _BANK["papers"]
TASKS: Final[TextRows] = _BANK["tasks"]
REALTY: Final[list[str]] = _BANK["realty"]
CARS: Final[TextRows] = _BANK["cars"]
SENTENCES: Final[list[str]] = _BANK["sentences"]
_SENTENCES_WITH_SIZE: Final = tuple((text, len(text.encode()) + 1) for text in SENTENCES)


def generate_full_name(rng: Random) -> tuple[str, str, str]:
    """Generate surname, name and patronymic of the same gender."""
    surname, father = rng.choice(_BANK["surnames"]), rng.choice(_BANK["fathers"])
    if rng.random() < 0.5:
        return surname, rng.choice(_BANK["men"]), father + "ич"
    return surname + "а", rng.choice(_BANK["women"]), father + "на"


def generate_remark(rng: Random, size: int) -> str:
    """Generate a remark of about `size` bytes of UTF-8, never more.

    The remark ends with a whole word, so it can be shorter than `size` by a part of a word.
    """
    sentences: list[str] = []
    missing_bytes = size
    while missing_bytes > 0:
        text, length = _SENTENCES_WITH_SIZE[int(rng.random() * len(_SENTENCES_WITH_SIZE))]
        sentences.append(text)
        missing_bytes -= length
    whole = " ".join(sentences).encode()
    if len(whole) <= size:
        return whole.decode()
    shortened = whole[: size + 1].rpartition(b" ")[0]
    return shortened.decode().rstrip(",:") if shortened else ""


def generate_phone(rng: Random) -> str:
    number = int(rng.random() * 10**9)
    return f"+79{number:09d}"


def generate_address(rng: Random) -> str:
    city, street = rng.choice(_BANK["cities"])
    return f"{city}, {street}, д. {1 + rng.getrandbits(6)}, кв. {1 + rng.getrandbits(8)}"
