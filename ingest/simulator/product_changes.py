"""What happens to an application between CREATE and its last version."""

from collections.abc import Callable
from decimal import Decimal
from typing import Final

from ingest.simulator import actors, dossier
from ingest.simulator.document import Actor, Document, Turn
from ingest.simulator.mutable_snapshot import new_id
from ingest.simulator.shape import MORTGAGE

WORKFLOW: Final = (
    ("DRAFT", "Заполнение анкеты"),
    ("SCORING", "Скоринг"),
    ("DOCUMENTS", "Сбор документов"),
    ("UNDERWRITING", "Андеррайтинг"),
    ("APPROVED", "Одобрена"),
    ("DEAL", "Подготовка сделки"),
    ("SIGNING", "Подписание"),
    ("REGISTRATION", "Регистрация залога"),
)
_OUTCOMES: Final = (
    ("ISSUED", "Кредит выдан"),
    ("ISSUED", "Кредит выдан"),
    ("ISSUED", "Кредит выдан"),
    ("REJECTED", "Отказ банка"),
    ("WITHDRAWN", "Отказ клиента"),
)
_ORDER: Final = {code: place for place, (code, _) in enumerate(WORKFLOW)}

Change = Callable[[Document, Turn], Actor | None]


def change(document: Document, turn: Turn) -> Actor | None:
    """Make the steps of the workflow that are due, and one or two other changes."""
    if turn.last and document.versions > 3:
        return _close(document, turn)
    draw = turn.rng.random()
    if draw < 0.02:
        return Actor(actors.CRM)  # only the technical fields
    moved = _move(document, turn)
    if moved and draw < 0.3:
        return None
    actor = _choose_change(turn)(document, turn)
    if draw > 0.8:
        actor = _choose_change(turn)(document, turn) or actor
    return actor


def _move(document: Document, turn: Turn) -> bool:
    """Forward to the status that fits the progress; a consumer loan has nothing to register."""
    snapshot = document.snapshot
    steps = WORKFLOW if "encumbrance" in snapshot else WORKFLOW[:-1]
    code, name = steps[min(int(turn.progress * len(steps)), len(steps) - 1)]
    if _ORDER[code] <= _ORDER[snapshot["status"]]:
        return False
    snapshot["status"], snapshot["stage"] = code, name
    if _ORDER[code] >= _ORDER["APPROVED"]:
        _approve(document)
    return True


def _approve(document: Document) -> None:
    snapshot = document.snapshot
    if snapshot["approvedAmount"] is None:
        snapshot["approvedAmount"] = Decimal(snapshot["amount"]).quantize(_KOPECK)


def _close(document: Document, turn: Turn) -> Actor | None:
    if turn.rng.random() < 0.15:  # some wait for their client forever
        return _terms(document, turn)
    code, name = turn.rng.choice(_OUTCOMES)
    document.snapshot.update({"status": code, "stage": name, "closedAt": turn.at})
    if code == "ISSUED":
        _approve(document)
    return None if code == "WITHDRAWN" else Actor(actors.ARCHIVE)


def _choose_change(turn: Turn) -> Change:
    return _CHANGES[int(turn.rng.random() * len(_CHANGES))]


def _rate(document: Document, turn: Turn) -> Actor | None:
    snapshot = document.snapshot
    rate = Decimal(snapshot["rate"])
    step = Decimal(turn.rng.choice((-15, -10, -7, -5, -3, 3, 5, 10))) / 10
    snapshot["rate"] = str(max(rate + step, Decimal("3.0")))
    _recount(document)
    return Actor(actors.RATES) if turn.rng.random() < 0.5 else None


def _terms(document: Document, turn: Turn) -> Actor | None:
    snapshot = document.snapshot
    if turn.rng.random() < 0.6:
        amount = Decimal(snapshot["amount"]) * turn.rng.choice((85, 90, 95, 105, 110)) / 100
        snapshot["amount"] = f"{max(int(amount) // 1000, 30)}000.0"
    else:
        longer = turn.rng.choice((-12, 12, 24)) if snapshot["term"] > 12 else 12
        snapshot["term"] = min(snapshot["term"] + longer, 360)
    _recount(document)
    return None


def _recount(document: Document) -> None:
    snapshot = document.snapshot
    amount, rate = Decimal(snapshot["amount"]), Decimal(snapshot["rate"])
    snapshot["monthlyPayment"] = dossier.annuity(amount, rate, snapshot["term"])
    if "schedule" in snapshot:
        dossier.count_payments(snapshot["schedule"], amount, rate)
        snapshot["schedule"] = snapshot["schedule"]


def _papers(document: Document, turn: Turn) -> Actor | None:
    """Add or remove a paper, by the size that the document should have; or sort the papers."""
    rng, papers = turn.rng, document.snapshot["documents"]
    if len(papers) > 2 and rng.random() < 0.15:
        papers.insert(0, papers.pop(1 + int(rng.random() * (len(papers) - 1))))
    elif document.room() > dossier.PAPER_BYTES // 2:
        papers.insert(0 if rng.random() < 0.2 else len(papers), dossier.paper(rng, turn.at[:10]))
    elif len(papers) > 1:
        papers.pop(int(rng.random() * len(papers)))
    else:
        return _recognize(document, turn)
    document.snapshot["documents"] = papers
    return None


def _recognize(document: Document, turn: Turn) -> Actor | None:
    """A paper is read by the recognizer, then accepted or rejected by a person."""
    papers = document.snapshot["documents"]
    paper = papers[int(turn.rng.random() * len(papers))]
    if paper["status"] == "NEW":
        paper["status"] = "RECOGNIZED"
        actor: Actor | None = Actor(actors.RECOGNIZER)
    else:
        actor = None
        accepted = paper["status"] == "REJECTED" or turn.rng.random() < 0.8
        paper["status"] = "ACCEPTED" if accepted else "REJECTED"
        paper["rejectReason"] = None if accepted else "Нечитаемая копия"
        paper["pages"] += 1
    document.snapshot["documents"] = papers
    return actor


def _comment(document: Document, turn: Turn) -> Actor | None:
    comments = document.snapshot["comments"]
    by = turn.actor.author or actors.CRM
    if document.room() > dossier.COMMENT_BYTES // 2 or not comments:
        comments.append(dossier.comment(turn.rng, turn.at, by))
    else:
        # The oldest remark has gone to the archive with the papers it was about.
        comments.pop(0)
    document.snapshot["comments"] = comments
    return None


def _condition(document: Document, turn: Turn) -> Actor | None:
    conditions = document.snapshot["conditions"]
    unmet = [one for one in conditions if not one["done"]]
    if unmet:
        met = unmet[int(turn.rng.random() * len(unmet))]
        met["done"], met["doneAt"] = True, turn.at
    elif document.room() > dossier.CONDITION_BYTES // 2:
        conditions.append(dossier.condition(turn.rng))
    elif conditions:
        conditions.pop()
    else:
        return _manager(document, turn)
    document.snapshot["conditions"] = conditions
    return None


def _insurance(document: Document, turn: Turn) -> Actor | None:
    if "insurance" not in document.snapshot:
        return _rate(document, turn)
    insurance = document.snapshot["insurance"]
    if insurance["paidAt"] is None and turn.progress > 0.5:
        insurance["paidAt"] = turn.at[:10]
    else:
        insurance["life"] = not insurance["life"]
        step = Decimal(turn.rng.randrange(-90_000, 90_000)).scaleb(-2)
        insurance["premium"] = max(insurance["premium"] + step, Decimal("500.00"))
    document.snapshot["insurance"] = insurance
    return None


def _encumbrance(document: Document, turn: Turn) -> Actor | None:
    """The next state of the pledge in the register; only services write it."""
    snapshot = document.snapshot
    if "encumbrance" not in snapshot:
        return _terms(document, turn)
    pledge = snapshot["encumbrance"]
    if pledge["submissionId"] is None or pledge["status"] == "RETURNED":
        year = turn.at[:4]
        pledge["submissionId"] = f"КУВД-001/{year}-{turn.rng.randrange(10**8):08d}"
        pledge["status"] = "SENT"
    elif pledge["status"] == "SENT":
        registered = turn.rng.random() < 0.7
        pledge["status"] = "REGISTERED" if registered else "RETURNED"
        pledge["registeredAt"] = turn.at if registered else None
    else:
        return _rate(document, turn)
    snapshot["encumbrance"] = pledge
    return Actor(actors.REGISTRAR)


def _manager(document: Document, turn: Turn) -> Actor | None:
    others = [one for one in actors.STAFF if one != document.snapshot["manager"]]
    document.snapshot["manager"] = turn.rng.choice(others)
    return Actor(actors.DISPATCHER)


def _crm(document: Document, turn: Turn) -> Actor | None:
    if document.role != MORTGAGE:
        return _rate(document, turn)
    document.snapshot["realtyCrmId"] = f"4-{new_id(turn.rng)[:7].upper()}"
    return Actor(actors.CRM)


_KOPECK: Final = Decimal("0.01")
_CHANGES: Final[tuple[Change, ...]] = (
    *(_rate,) * 4,
    *(_terms,) * 3,
    *(_papers,) * 5,
    *(_recognize,) * 4,
    *(_comment,) * 4,
    *(_condition,) * 3,
    *(_insurance,) * 2,
    *(_encumbrance,) * 3,
    *(_manager,) * 1,
    *(_crm,) * 1,
)
