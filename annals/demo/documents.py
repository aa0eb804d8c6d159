"""Makes the first snapshots of simulated applications and children, and changes them later."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from random import Random
from typing import Any, Final, NamedTuple

import msgspec

from annals.demo import vocabulary

# Decimals are written as numbers, digit for digit: 17.90 stays 17.90.
encode: Final = msgspec.json.Encoder(decimal_format="number").encode

# Bytes of the envelope and of the technical fields, on average.
_ENVELOPE_BYTES, _CHILD_ENVELOPE_BYTES = 287, 332
_KOPECK: Final = Decimal("0.01")
_LETTERS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

_WORKFLOW_ORDER: Final = {code: index for index, (code, _) in enumerate(vocabulary.WORKFLOW)}
_BIRTH_DAYS: Final = (date(1960, 1, 1).toordinal(), date(2005, 12, 31).toordinal())

Item = dict[str, Any]


@dataclass(slots=True)
class SimulatedDocument:
    """A simulated document and the random values that were drawn for it."""

    entity: str
    id: str
    application: str
    role: str  # the kind of loan, or of child
    versions: int  # how many versions the document will have
    size: int  # how many bytes its messages should have, roughly
    deleted: bool  # whether the last version deletes the document
    staff: list[str]  # the logins of the people who work on the application
    version: int = -1  # the number of the newest version; -1: there is none yet
    snapshot: Item = field(default_factory=dict)
    last_moment: int = 0  # of the newest version, in nanoseconds since 1970

    def count_missing_bytes(self) -> int:
        """Return how many bytes the snapshot must grow until its message has `size` bytes.

        The number is negative if the message is already larger.
        """
        around = _ENVELOPE_BYTES if self.application == self.id else _CHILD_ENVELOPE_BYTES
        return self.size - len(encode(self.snapshot)) - around

    def fill_with_remark(self, rng: Random) -> None:
        if (room := self.count_missing_bytes() - len('"remark":"",')) > 24:
            self.snapshot["remark"] = vocabulary.generate_remark(rng, room)


class ChangeContext(NamedTuple):
    """The values that a `ChangeFunction` needs to change a document."""

    rng: Random
    at: str  # ISO 8601
    progress: float  # 0 at CREATE, 1 at the last version
    last: bool  # whether this is the last version
    author: str  # the person who makes the change, unless a service does


# Changes a document. Returns the client id of the service that made the change, or None if a person
# made it.
ChangeFunction = Callable[[SimulatedDocument, ChangeContext], str | None]


def generate_id(rng: Random) -> str:
    """Generate an id as the services do: 22 letters and digits."""
    return "".join(rng.choices(_LETTERS, k=22))


def create_product(document: SimulatedDocument, context: ChangeContext) -> None:
    """Fill the snapshot of a new application.

    The snapshot gets the terms of the loan first. Then it gets lists and a remark, until the
    message has the size that was drawn for the document.
    """
    rng, snapshot = context.rng, document.snapshot
    code, name, amounts, years, rates = rng.choice(vocabulary.OFFERS[document.role])
    amount = Decimal(rng.randint(*amounts) * 1000)
    rate = Decimal(rng.randint(rates[0] * 10, rates[1] * 10)) / 10
    term = 12 * rng.randint(*years)
    branch, office = rng.choice(vocabulary.BRANCHES)
    snapshot |= {
        "pid": document.id,
        "type": code,
        "name": name,
        "number": f"{branch}-{context.at[:4]}-{rng.randrange(10**7):07d}",
        "status": "DRAFT",
        "stage": "Заполнение анкеты",
        "createdAt": context.at,
        "closedAt": None,
        "channel": rng.choice(("OFFICE", "ONLINE", "PARTNER", "CALL_CENTER")),
        "rate": str(rate),
        "baseRate": Decimal(rates[1]).quantize(_KOPECK),
        "amount": f"{amount}.0",
        "approvedAmount": None,
        "term": term,
        "monthlyPayment": (amount / term).quantize(_KOPECK),
        "currency": "RUB",
        "manager": context.author,
        "branch": {"code": branch, "name": office},
        "documents": [_make_paper(context)],
    }
    if document.role != "consumer":
        snapshot["encumbrance"] = {"submissionId": None, "status": "NONE", "registeredAt": None}
        snapshot["downPayment"] = f"{rng.randint(20, 400)}0000.0"
    snapshot["comments"] = []
    if (room := document.count_missing_bytes()) > 2_600:
        payments = int(room * rng.uniform(0.5, 0.8)) // 85  # bytes of a payment
        first = date.fromisoformat(context.at[:10])
        snapshot["schedule"] = [
            {
                "pid": generate_id(rng),
                "date": (first + timedelta(days=30 * number)).isoformat(),
                "amount": snapshot["monthlyPayment"],
            }
            for number in range(1, payments + 1)
        ]
    while document.count_missing_bytes() > 330:
        name, make = rng.choice(_LIST_MAKERS)
        snapshot[name].append(make(context))
    document.fill_with_remark(rng)


def _make_paper(context: ChangeContext) -> Item:
    code, name = context.rng.choice(vocabulary.PAPERS)
    return {
        "pid": generate_id(context.rng),
        "type": code,
        "name": name,
        "status": "NEW",
        "date": context.at[:10],
        "pages": context.rng.randint(1, 8),
        "rejectReason": None,
    }


def _make_comment(context: ChangeContext) -> Item:
    text = context.rng.choice(vocabulary.SENTENCES)
    return {"pid": generate_id(context.rng), "at": context.at, "by": context.author, "text": text}


_LIST_MAKERS: Final = (("documents", _make_paper), ("comments", _make_comment))


def change_product(document: SimulatedDocument, context: ChangeContext) -> str | None:
    """Change an application. A ChangeFunction.

    The application goes on to the next step of its workflow, or one or two other values change. In
    the last version, most applications are closed with an outcome.
    """
    rng, snapshot = context.rng, document.snapshot
    if context.last and document.versions > 3 and rng.random() < 0.85:  # some are never closed
        code, name = rng.choice(vocabulary.OUTCOMES)
        snapshot |= {"status": code, "stage": name, "closedAt": context.at}
        return None if code == "WITHDRAWN" else vocabulary.ARCHIVE
    draw = rng.random()
    if draw < 0.02:
        return vocabulary.CRM  # the new version differs only in the technical fields
    if _advance_workflow(document, context) and draw < 0.3:
        return None
    changes = rng.choices(*_WEIGHTED_CHANGES, k=1 + (draw > 0.8))
    return [change(document, context) for change in changes][-1]


def _advance_workflow(document: SimulatedDocument, context: ChangeContext) -> bool:
    """Move the application to the status that fits its progress.

    The workflow of a consumer loan ends before the registration of a pledge.

    Returns:
        Whether the status changed.
    """
    snapshot = document.snapshot
    steps = len(vocabulary.WORKFLOW) - ("encumbrance" not in snapshot)
    code, name = vocabulary.WORKFLOW[min(int(context.progress * steps), steps - 1)]
    if _WORKFLOW_ORDER[code] <= _WORKFLOW_ORDER[snapshot["status"]]:
        return False
    snapshot |= {"status": code, "stage": name}
    if _WORKFLOW_ORDER[code] >= _WORKFLOW_ORDER["APPROVED"] and snapshot["approvedAmount"] is None:
        snapshot["approvedAmount"] = Decimal(snapshot["amount"]).quantize(_KOPECK)
    return True


def _change_terms(document: SimulatedDocument, context: ChangeContext) -> str | None:
    """Change the rate of the loan, or its amount and payments. A ChangeFunction."""
    rng, snapshot = context.rng, document.snapshot
    if rng.random() < 0.6:
        step = Decimal(rng.choice((-15, -10, -7, -5, -3, 3, 5, 10))) / 10
        snapshot["rate"] = str(max(Decimal(snapshot["rate"]) + step, Decimal("3.0")))
        return rng.choice((vocabulary.RATES, None))
    amount = Decimal(snapshot["amount"]) * rng.choice((85, 90, 95, 105, 110)) / 100
    snapshot["amount"] = f"{max(int(amount) // 1000, 30)}000.0"
    payment = (Decimal(snapshot["amount"]) / snapshot["term"]).quantize(_KOPECK)
    snapshot["monthlyPayment"] = payment
    for payment_row in snapshot.get("schedule", ()):
        payment_row["amount"] = payment
    return None


def _change_list(document: SimulatedDocument, context: ChangeContext) -> str | None:
    """Add, remove or move an item in the list of papers or of comments. A ChangeFunction."""
    rng = context.rng
    name, make = rng.choice(_LIST_MAKERS)
    items = document.snapshot[name]
    if name == "documents" and len(items) > 2 and rng.random() < 0.15:
        items.insert(0, items.pop(rng.randrange(1, len(items))))
    elif document.count_missing_bytes() > 100 or len(items) < (name == "documents") + 1:
        items.insert(rng.choice((0, len(items))), make(context))
    else:
        items.pop(rng.randrange(len(items)))
    return None


def _work_on_papers(document: SimulatedDocument, context: ChangeContext) -> str | None:
    """Change the status of one paper: recognized, accepted or rejected. A ChangeFunction."""
    rng, snapshot = context.rng, document.snapshot
    paper = rng.choice(snapshot["documents"])
    if paper["status"] == "NEW":
        paper["status"] = "RECOGNIZED"
        return vocabulary.RECOGNIZER
    accepted = paper["status"] == "REJECTED" or rng.random() < 0.8
    reason = None if accepted else "Нечитаемая копия"
    paper.update(status="ACCEPTED" if accepted else "REJECTED", rejectReason=reason)
    paper["pages"] += 1
    return None


def _advance_encumbrance(document: SimulatedDocument, context: ChangeContext) -> str | None:
    """Move the pledge to its next status in the register of property. A ChangeFunction.

    If there is no pledge, or it is registered already, change the terms of the loan instead.
    """
    pledge = document.snapshot.get("encumbrance")
    if pledge is None or pledge["status"] == "REGISTERED":
        return _change_terms(document, context)
    if pledge["status"] == "SENT":
        pledge.update(status="REGISTERED", registeredAt=context.at)
    else:
        number = context.rng.randrange(10**8)
        pledge.update(submissionId=f"КУВД-001/{context.at[:4]}-{number:08d}", status="SENT")
    return vocabulary.REGISTRAR


def _change_manager(document: SimulatedDocument, context: ChangeContext) -> str | None:
    document.snapshot["manager"] = context.rng.choice(vocabulary.STAFF)
    return vocabulary.DISPATCHER


# The changes of an application, and their weights.
_WEIGHTED_CHANGES: Final[tuple[tuple[ChangeFunction, ...], tuple[int, ...]]] = (
    (_change_terms, _change_list, _work_on_papers, _advance_encumbrance, _change_manager),
    (8, 10, 7, 3, 2),
)


def create_child(document: SimulatedDocument, context: ChangeContext) -> None:
    """Fill the snapshot of a new child of an application.

    The snapshot gets all required fields first. Then it gets optional fields and a remark, until
    the message has the size that was drawn for the document.
    """
    required, optional = _CHILD_MAKERS[document.entity](document, context)
    document.snapshot |= {"pid": document.id, **required}
    for name, value in {"createdAt": context.at, **optional}.items():
        document.snapshot[name] = value
        if document.count_missing_bytes() < 0:
            del document.snapshot[name]
            break
    document.fill_with_remark(context.rng)


def _make_participant(document: SimulatedDocument, context: ChangeContext) -> tuple[Item, Item]:
    rng = context.rng
    income = rng.randint(45, 600) * 1000
    return {
        "role": document.role,
        "fullName": " ".join(vocabulary.generate_full_name(rng)),
        "clientId": str(rng.randrange(10**9, 10**10)),
        "income": f"{income}.0",
    }, {
        "birthDate": date.fromordinal(rng.randint(*_BIRTH_DAYS)).isoformat(),
        "phones": [
            {"pid": generate_id(rng), "type": "MOBILE", "number": vocabulary.generate_phone(rng)}
        ],
        "employment": {"employer": rng.choice(vocabulary.EMPLOYERS), "months": rng.randint(3, 240)},
        "debtLoad": Decimal(rng.randint(500, 6500)).scaleb(-2),
        "registrationAddress": vocabulary.generate_address(rng),
        "passport": {"series": f"{rng.randrange(10**4):04d}", "number": f"{income:06d}"},
    }


def _make_realty(_: SimulatedDocument, context: ChangeContext) -> tuple[Item, Item]:
    rng = context.rng
    return {
        "type": rng.choice(vocabulary.REALTY),
        "assessedAmount": f"{rng.randint(900, 20_000)}000.0",
        "area": Decimal(rng.randint(180, 1800)) / 10,
        "cadastralNumber": None,
    }, {
        "address": vocabulary.generate_address(rng),
        "floor": rng.randint(1, 25),
        "owners": [
            {
                "pid": generate_id(rng),
                "name": " ".join(vocabulary.generate_full_name(rng)),
                "share": "1/1",
            }
        ],
    }


def _make_car(_: SimulatedDocument, context: ChangeContext) -> tuple[Item, Item]:
    rng = context.rng
    brand, model = rng.choice(vocabulary.CARS)
    return {
        "brand": brand,
        "model": model,
        "year": rng.randint(2012, 2026),
        "price": Decimal(rng.randint(5_000, 60_000) * 10_000).scaleb(-2),
        "vin": None,
    }, {
        "mileage": rng.randrange(150_000),
        "dealer": {"name": "ООО «Автоцентр Запад»", "city": "г. Тверь"},
        "options": [{"pid": generate_id(rng), "name": "Зимний пакет", "price": "45000.0"}],
    }


def _make_task(_: SimulatedDocument, context: ChangeContext) -> tuple[Item, Item]:
    code, name = context.rng.choice(vocabulary.TASKS)
    required = {"type": code, "name": name, "status": "NEW", "assignee": None}
    return required, {"dueAt": context.at[:10], "priority": context.rng.randint(1, 5)}


_CHILD_MAKERS: Final[
    Mapping[str, Callable[[SimulatedDocument, ChangeContext], tuple[Item, Item]]]
] = {
    "participant-role": _make_participant,
    "realty-info": _make_realty,
    "product-car": _make_car,
    "product-task": _make_task,
}


def change_child(document: SimulatedDocument, context: ChangeContext) -> str | None:
    rng, snapshot, is_frequent = context.rng, document.snapshot, context.rng.random() < 0.5
    match document.entity:
        case "participant-role" if is_frequent:
            snapshot["income"] = f"{rng.randint(45, 600) * 1000}.0"
        case "participant-role" if "phones" in snapshot and rng.random() < 0.5:
            work = {
                "pid": generate_id(rng),
                "type": "WORK",
                "number": vocabulary.generate_phone(rng),
            }
            snapshot["phones"] = [*snapshot["phones"], work][-2:]
        case "participant-role":
            snapshot["clientId"] = str(rng.randrange(10**9, 10**10))
            return vocabulary.ACTUALIZATOR
        case "realty-info" if is_frequent:
            snapshot["assessedAmount"] = f"{rng.randint(900, 20_000)}000.0"
        case "realty-info":
            snapshot["cadastralNumber"] = f"77:{rng.randint(1, 20):02d}:{rng.randrange(10**7):07d}"
            return vocabulary.REGISTRAR
        case "product-car" if is_frequent:
            snapshot["vin"] = "X" + generate_id(rng)[:16].upper()
            return vocabulary.CRM
        case "product-car":
            snapshot["price"] += Decimal(rng.randint(1_000, 9_000) * 1_000).scaleb(-2)
        case _ if context.last and snapshot["assignee"] is not None:
            snapshot["status"] = "DONE"
        case _:
            snapshot |= {"assignee": rng.choice(document.staff), "status": "IN_PROGRESS"}
            return vocabulary.DISPATCHER
    return None
