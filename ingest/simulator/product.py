"""How an application (product instance) looks when it is made."""

from datetime import date
from decimal import Decimal
from random import Random
from typing import Final

from ingest.simulator import dossier
from ingest.simulator.document import Document, Turn
from ingest.simulator.shape import CAR_LOAN, CONSUMER_LOAN, MORTGAGE
from ingest.simulator.words import BRANCHES, remark

# Code, name, amount in thousands of roubles, years, rate in per cent.
_OFFERS: Final = {
    MORTGAGE: (
        ("MORTGAGE_SECONDARY", "Ипотека на готовое жильё", (1_500, 18_000), (10, 30), (15, 22)),
        ("MORTGAGE_PRIMARY", "Ипотека на новостройку", (2_000, 25_000), (10, 30), (14, 21)),
        ("MORTGAGE_FAMILY", "Семейная ипотека", (2_000, 12_000), (15, 30), (5, 6)),
    ),
    CAR_LOAN: (
        ("CAR_NEW", "Автокредит на новый автомобиль", (700, 6_000), (2, 7), (13, 21)),
        ("CAR_USED", "Автокредит на автомобиль с пробегом", (300, 3_000), (1, 5), (17, 25)),
    ),
    CONSUMER_LOAN: (
        ("CONSUMER_CASH", "Потребительский кредит", (50, 3_000), (1, 7), (19, 34)),
        ("CONSUMER_REFINANCE", "Рефинансирование", (100, 5_000), (2, 7), (17, 29)),
    ),
}
_CHANNELS: Final = ("OFFICE", "ONLINE", "PARTNER", "CALL_CENTER")


def create(document: Document, turn: Turn) -> None:
    """The application with its terms, then lists and remarks up to the size drawn for it."""
    rng, snapshot = turn.rng, document.snapshot
    code, name, amounts, years, rates = rng.choice(_OFFERS[document.role])
    amount = Decimal(rng.randint(*amounts) * 1000)
    rate = Decimal(rng.randint(rates[0] * 10, rates[1] * 10)) / 10
    term = 12 * rng.randint(*years)
    branch = rng.choice(BRANCHES)
    snapshot.update(
        {
            "pid": document.id,
            "type": code,
            "name": name,
            "number": f"{branch[0]}-{turn.at[:4]}-{rng.randrange(10**7):07d}",
            "status": "DRAFT",
            "stage": "Заполнение анкеты",
            "createdAt": turn.at,
            "closedAt": None,
            "channel": rng.choice(_CHANNELS),
            "rate": str(rate),
            "baseRate": Decimal(rates[1]).quantize(Decimal("0.01")),
            "amount": f"{amount}.0",
            "approvedAmount": None,
            "term": term,
            "monthlyPayment": dossier.annuity(amount, rate, term),
            "currency": "RUB",
            "realtyCrmId": None,
            "manager": turn.actor.author,
            "branch": {"code": branch[0], "name": branch[1]},
            "documents": [dossier.paper(rng, turn.at[:10])],
        }
    )
    _pledge(document, rng)
    _fill(document, turn, amount, rate)


def _pledge(document: Document, rng: Random) -> None:
    """What only a secured loan has; a consumer loan may have a refinanced debt."""
    snapshot = document.snapshot
    if document.role != CONSUMER_LOAN:
        snapshot["encumbrance"] = {"submissionId": None, "status": "NONE", "registeredAt": None}
        snapshot["downPayment"] = f"{rng.randint(20, 400)}0000.0"
    elif snapshot["type"] == "CONSUMER_REFINANCE":
        snapshot["refinancedDebt"] = Decimal(rng.randrange(10**6, 10**9)).scaleb(-2)


def _fill(document: Document, turn: Turn, amount: Decimal, rate: Decimal) -> None:
    """Add lists while there is room, a payment schedule if there is much, then a remark."""
    rng, snapshot = turn.rng, document.snapshot
    room = document.room()
    if room > 140:
        snapshot["insurance"] = _insurance(rng, amount)
    conditions: list[dossier.Item] = []
    comments: list[dossier.Item] = []
    room = document.room()
    if room > 2_600:
        rows = int(room * rng.uniform(0.5, 0.8)) // dossier.PAYMENT_BYTES
        first = date.fromisoformat(turn.at[:10])
        snapshot["schedule"] = dossier.schedule(rng, rows, amount, rate, first)
        room = document.room()
    while room > 330:
        draw = rng.random()
        if draw < 0.4:
            snapshot["documents"].append(dossier.paper(rng, turn.at[:10]))
            room -= dossier.PAPER_BYTES
        elif draw < 0.7:
            conditions.append(dossier.condition(rng))
            room -= dossier.CONDITION_BYTES
        else:
            comments.append(dossier.comment(rng, turn.at, turn.actor.author or "top-crm-sync"))
            room -= dossier.COMMENT_BYTES
    snapshot.update(
        {"documents": snapshot["documents"], "conditions": conditions, "comments": comments}
    )
    room = document.room() - len('"remark":"",')
    if room > 24:
        snapshot["remark"] = remark(rng, room)


def _insurance(rng: Random, amount: Decimal) -> dossier.Item:
    return {
        "company": rng.choice(("СК «Надежда»", "АО «Гарант-Полис»", "СПАО «Волга»")),
        "life": rng.random() < 0.6,
        "object": rng.random() < 0.8,
        "premium": (amount * rng.randint(3, 12) / 1000).quantize(Decimal("0.01")),
        "paidAt": None,
    }
