"""What the simulated applications and their children contain, and how a version changes them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from random import Random
from typing import Any, Final, NamedTuple

import msgspec

from annals.demo import words

# Decimals are written as numbers, digit for digit: 17.90 stays 17.90.
encode: Final = msgspec.json.Encoder(decimal_format="number").encode

# Bytes of the envelope and of the technical fields, on average.
_AROUND, _AROUND_CHILD = 287, 332
_KOPECK: Final = Decimal("0.01")
_LETTERS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

_ORDER: Final = {code: place for place, (code, _) in enumerate(words.WORKFLOW)}
_BORN: Final = (date(1960, 1, 1).toordinal(), date(2005, 12, 31).toordinal())

Item = dict[str, Any]


@dataclass(slots=True)
class Document:
    """A document and what was drawn for it. role: the kind of loan, or of child. size: bytes that
    its messages should have, roughly."""

    entity: str
    id: str
    application: str
    role: str
    versions: int
    size: int
    deleted: bool
    staff: list[str]
    version: int = -1
    snapshot: Item = field(default_factory=dict)
    last_moment: int = 0

    def room(self) -> int:
        """Bytes that are missing to the size the document should have."""
        around = _AROUND if self.application == self.id else _AROUND_CHILD
        return self.size - len(encode(self.snapshot)) - around

    def fill_with_remark(self, rng: Random) -> None:
        if (room := self.room() - len('"remark":"",')) > 24:
            self.snapshot["remark"] = words.remark(rng, room)


class Turn(NamedTuple):
    """The circumstances of one change. at: ISO 8601. progress: 0 at CREATE, 1 at the last version.
    author: the person who makes the change, unless a service does."""

    rng: Random
    at: str
    progress: float
    last: bool
    author: str


# A change gives the client id of the service that made it; None: a person did.
Change = Callable[[Document, Turn], str | None]


def new_id(rng: Random) -> str:
    """22 letters and digits, as the source makes them."""
    return "".join(rng.choices(_LETTERS, k=22))


def create_product(document: Document, turn: Turn) -> None:
    """The application with its terms, then lists and a remark up to the size drawn for it."""
    rng, snapshot = turn.rng, document.snapshot
    code, name, amounts, years, rates = rng.choice(words.OFFERS[document.role])
    amount = Decimal(rng.randint(*amounts) * 1000)
    rate = Decimal(rng.randint(rates[0] * 10, rates[1] * 10)) / 10
    term = 12 * rng.randint(*years)
    branch, office = rng.choice(words.BRANCHES)
    snapshot |= {
        "pid": document.id,
        "type": code,
        "name": name,
        "number": f"{branch}-{turn.at[:4]}-{rng.randrange(10**7):07d}",
        "status": "DRAFT",
        "stage": "Заполнение анкеты",
        "createdAt": turn.at,
        "closedAt": None,
        "channel": rng.choice(("OFFICE", "ONLINE", "PARTNER", "CALL_CENTER")),
        "rate": str(rate),
        "baseRate": Decimal(rates[1]).quantize(_KOPECK),
        "amount": f"{amount}.0",
        "approvedAmount": None,
        "term": term,
        "monthlyPayment": (amount / term).quantize(_KOPECK),
        "currency": "RUB",
        "manager": turn.author,
        "branch": {"code": branch, "name": office},
        "documents": [_paper(turn)],
    }
    if document.role != "consumer":
        snapshot["encumbrance"] = {"submissionId": None, "status": "NONE", "registeredAt": None}
        snapshot["downPayment"] = f"{rng.randint(20, 400)}0000.0"
    snapshot["comments"] = []
    if (room := document.room()) > 2_600:
        payments = int(room * rng.uniform(0.5, 0.8)) // 85  # bytes of a payment
        first = date.fromisoformat(turn.at[:10])
        snapshot["schedule"] = [
            {
                "pid": new_id(rng),
                "date": (first + timedelta(days=30 * number)).isoformat(),
                "amount": snapshot["monthlyPayment"],
            }
            for number in range(1, payments + 1)
        ]
    while document.room() > 330:
        name, make = rng.choice(_LISTS)
        snapshot[name].append(make(turn))
    document.fill_with_remark(rng)


def _paper(turn: Turn) -> Item:
    code, name = turn.rng.choice(words.PAPERS)
    return {
        "pid": new_id(turn.rng),
        "type": code,
        "name": name,
        "status": "NEW",
        "date": turn.at[:10],
        "pages": turn.rng.randint(1, 8),
        "rejectReason": None,
    }


def _comment(turn: Turn) -> Item:
    text = turn.rng.choice(words.SENTENCES)
    return {"pid": new_id(turn.rng), "at": turn.at, "by": turn.author, "text": text}


_LISTS: Final = (("documents", _paper), ("comments", _comment))


def change_product(document: Document, turn: Turn) -> str | None:
    """The step of the workflow that is due, or one or two other changes; at the end an outcome."""
    rng, snapshot = turn.rng, document.snapshot
    if turn.last and document.versions > 3 and rng.random() < 0.85:  # some are never closed
        code, name = rng.choice(words.OUTCOMES)
        snapshot |= {"status": code, "stage": name, "closedAt": turn.at}
        return None if code == "WITHDRAWN" else words.ARCHIVE
    draw = rng.random()
    if draw < 0.02:
        return words.CRM  # only the technical fields
    if _move(document, turn) and draw < 0.3:
        return None
    changes = rng.choices(*_CHANGES, k=1 + (draw > 0.8))
    return [change(document, turn) for change in changes][-1]


def _move(document: Document, turn: Turn) -> bool:
    """Forward to the status that fits the progress; a consumer loan has nothing to register."""
    snapshot = document.snapshot
    steps = len(words.WORKFLOW) - ("encumbrance" not in snapshot)
    code, name = words.WORKFLOW[min(int(turn.progress * steps), steps - 1)]
    if _ORDER[code] <= _ORDER[snapshot["status"]]:
        return False
    snapshot |= {"status": code, "stage": name}
    if _ORDER[code] >= _ORDER["APPROVED"] and snapshot["approvedAmount"] is None:
        snapshot["approvedAmount"] = Decimal(snapshot["amount"]).quantize(_KOPECK)
    return True


def _terms(document: Document, turn: Turn) -> str | None:
    """Another rate or amount, and the payments that follow from it."""
    rng, snapshot = turn.rng, document.snapshot
    if rng.random() < 0.6:
        step = Decimal(rng.choice((-15, -10, -7, -5, -3, 3, 5, 10))) / 10
        snapshot["rate"] = str(max(Decimal(snapshot["rate"]) + step, Decimal("3.0")))
        return rng.choice((words.RATES, None))
    amount = Decimal(snapshot["amount"]) * rng.choice((85, 90, 95, 105, 110)) / 100
    snapshot["amount"] = f"{max(int(amount) // 1000, 30)}000.0"
    payment = (Decimal(snapshot["amount"]) / snapshot["term"]).quantize(_KOPECK)
    snapshot["monthlyPayment"] = payment
    for each in snapshot.get("schedule", ()):
        each["amount"] = payment
    return None


def _lists(document: Document, turn: Turn) -> str | None:
    """An item of a list comes or, where the document is large enough, goes; or papers are moved."""
    rng = turn.rng
    name, make = rng.choice(_LISTS)
    items = document.snapshot[name]
    if name == "documents" and len(items) > 2 and rng.random() < 0.15:
        items.insert(0, items.pop(rng.randrange(1, len(items))))
    elif document.room() > 100 or len(items) < (name == "documents") + 1:
        items.insert(rng.choice((0, len(items))), make(turn))
    else:
        items.pop(rng.randrange(len(items)))
    return None


def _work_on_papers(document: Document, turn: Turn) -> str | None:
    """A paper is read by the recognizer, then judged by a person."""
    rng, snapshot = turn.rng, document.snapshot
    paper = rng.choice(snapshot["documents"])
    if paper["status"] == "NEW":
        paper["status"] = "RECOGNIZED"
        return words.RECOGNIZER
    accepted = paper["status"] == "REJECTED" or rng.random() < 0.8
    reason = None if accepted else "Нечитаемая копия"
    paper.update(status="ACCEPTED" if accepted else "REJECTED", rejectReason=reason)
    paper["pages"] += 1
    return None


def _encumbrance(document: Document, turn: Turn) -> str | None:
    """The next state of the pledge in the register; only services write it."""
    pledge = document.snapshot.get("encumbrance")
    if pledge is None or pledge["status"] == "REGISTERED":
        return _terms(document, turn)
    if pledge["status"] == "SENT":
        pledge.update(status="REGISTERED", registeredAt=turn.at)
    else:
        number = turn.rng.randrange(10**8)
        pledge.update(submissionId=f"КУВД-001/{turn.at[:4]}-{number:08d}", status="SENT")
    return words.REGISTRAR


def _manager(document: Document, turn: Turn) -> str | None:
    document.snapshot["manager"] = turn.rng.choice(words.STAFF)
    return words.DISPATCHER


# The changes of an application, and how often each happens.
_CHANGES: Final[tuple[tuple[Change, ...], tuple[int, ...]]] = (
    (_terms, _lists, _work_on_papers, _encumbrance, _manager),
    (8, 10, 7, 3, 2),
)


def create_child(document: Document, turn: Turn) -> None:
    """The fields of its kind that all have, others while there is room, then a remark."""
    always, optional = _KINDS[document.entity](document, turn)
    document.snapshot |= {"pid": document.id, **always}
    for name, value in {"createdAt": turn.at, **optional}.items():
        document.snapshot[name] = value
        if document.room() < 0:
            del document.snapshot[name]
            break
    document.fill_with_remark(turn.rng)


def _participant(document: Document, turn: Turn) -> tuple[Item, Item]:
    rng = turn.rng
    income = rng.randint(45, 600) * 1000
    return {
        "role": document.role,
        "fullName": " ".join(words.full_name(rng)),
        "clientId": str(rng.randrange(10**9, 10**10)),
        "income": f"{income}.0",
    }, {
        "birthDate": date.fromordinal(rng.randint(*_BORN)).isoformat(),
        "phones": [{"pid": new_id(rng), "type": "MOBILE", "number": words.phone(rng)}],
        "employment": {"employer": rng.choice(words.EMPLOYERS), "months": rng.randint(3, 240)},
        "debtLoad": Decimal(rng.randint(500, 6500)).scaleb(-2),
        "registrationAddress": words.address(rng),
        "passport": {"series": f"{rng.randrange(10**4):04d}", "number": f"{income:06d}"},
    }


def _realty(_: Document, turn: Turn) -> tuple[Item, Item]:
    rng = turn.rng
    return {
        "type": rng.choice(words.REALTY),
        "assessedAmount": f"{rng.randint(900, 20_000)}000.0",
        "area": Decimal(rng.randint(180, 1800)) / 10,
        "cadastralNumber": None,
    }, {
        "address": words.address(rng),
        "floor": rng.randint(1, 25),
        "owners": [{"pid": new_id(rng), "name": " ".join(words.full_name(rng)), "share": "1/1"}],
    }


def _car(_: Document, turn: Turn) -> tuple[Item, Item]:
    rng = turn.rng
    brand, model = rng.choice(words.CARS)
    return {
        "brand": brand,
        "model": model,
        "year": rng.randint(2012, 2026),
        "price": Decimal(rng.randint(5_000, 60_000) * 10_000).scaleb(-2),
        "vin": None,
    }, {
        "mileage": rng.randrange(150_000),
        "dealer": {"name": "ООО «Автоцентр Запад»", "city": "г. Тверь"},
        "options": [{"pid": new_id(rng), "name": "Зимний пакет", "price": "45000.0"}],
    }


def _task(_: Document, turn: Turn) -> tuple[Item, Item]:
    code, name = turn.rng.choice(words.TASKS)
    always = {"type": code, "name": name, "status": "NEW", "assignee": None}
    return always, {"dueAt": turn.at[:10], "priority": turn.rng.randint(1, 5)}


_KINDS: Final[Mapping[str, Callable[[Document, Turn], tuple[Item, Item]]]] = {
    "participant-role": _participant,
    "realty-info": _realty,
    "product-car": _car,
    "product-task": _task,
}


def change_child(document: Document, turn: Turn) -> str | None:
    rng, snapshot, often = turn.rng, document.snapshot, turn.rng.random() < 0.5
    match document.entity:
        case "participant-role" if often:
            snapshot["income"] = f"{rng.randint(45, 600) * 1000}.0"
        case "participant-role" if "phones" in snapshot and rng.random() < 0.5:
            work = {"pid": new_id(rng), "type": "WORK", "number": words.phone(rng)}
            snapshot["phones"] = [*snapshot["phones"], work][-2:]
        case "participant-role":
            snapshot["clientId"] = str(rng.randrange(10**9, 10**10))
            return words.ACTUALIZATOR
        case "realty-info" if often:
            snapshot["assessedAmount"] = f"{rng.randint(900, 20_000)}000.0"
        case "realty-info":
            snapshot["cadastralNumber"] = f"77:{rng.randint(1, 20):02d}:{rng.randrange(10**7):07d}"
            return words.REGISTRAR
        case "product-car" if often:
            snapshot["vin"] = "X" + new_id(rng)[:16].upper()
            return words.CRM
        case "product-car":
            snapshot["price"] += Decimal(rng.randint(1_000, 9_000) * 1_000).scaleb(-2)
        case _ if turn.last and snapshot["assignee"] is not None:
            snapshot["status"] = "DONE"
        case _:
            snapshot |= {"assignee": rng.choice(document.staff), "status": "IN_PROGRESS"}
            return words.DISPATCHER
    return None
