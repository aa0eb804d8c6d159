"""The children of an application: participants, realty, cars and tasks."""

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any, Final

from ingest.simulator import actors
from ingest.simulator.document import APPLICATION, Actor, Document, Plot, Turn
from ingest.simulator.mutable_snapshot import new_id
from ingest.simulator.product import create as create_product
from ingest.simulator.product_changes import change as change_product
from ingest.simulator.words import EMPLOYERS, address, full_name, phone, remark

_TASKS: Final = (
    ("CALL_CLIENT", "Позвонить клиенту"),
    ("CHECK_INCOME", "Проверить доход"),
    ("CHECK_REALTY", "Проверить объект залога"),
    ("PREPARE_DEAL", "Подготовить сделку"),
    ("REQUEST_EGRN", "Запросить выписку из ЕГРН"),
)
_REALTY: Final = ("Квартира", "Апартаменты", "Жилой дом", "Земельный участок", "Комната")
_CARS: Final = (
    ("LADA", "Vesta"),
    ("LADA", "Granta"),
    ("Haval", "Jolion"),
    ("Chery", "Tiggo 7 Pro"),
    ("Geely", "Monjaro"),
    ("УАЗ", "Патриот"),
    ("Москвич", "3"),
)
_BORN: Final = (date(1960, 1, 1).toordinal(), date(2005, 12, 31).toordinal())


def _fill(document: Document, turn: Turn, optional: Mapping[str, Any]) -> None:
    """Add optional fields while there is room, then a remark that fills the rest."""
    for name, value in optional.items():
        document.snapshot[name] = value
        if document.room() < 0:
            del document.snapshot[name]
            break
    room = document.room() - len('"remark":"",')
    if room > 24:
        document.snapshot["remark"] = remark(turn.rng, room)


def _create_participant(document: Document, turn: Turn) -> None:
    rng = turn.rng
    surname, name, patronymic = full_name(rng)
    income = rng.randint(45, 600) * 1000
    document.snapshot.update(
        {
            "pid": document.id,
            "role": document.role,
            "fullName": f"{surname} {name} {patronymic}",
            "clientId": str(rng.randrange(10**9, 10**10)),
            "income": f"{income}.0",
        }
    )
    _fill(
        document,
        turn,
        {
            "birthDate": date.fromordinal(rng.randint(*_BORN)).isoformat(),
            "createdAt": turn.at,
            "phones": [{"pid": new_id(rng), "type": "MOBILE", "number": phone(rng)}],
            "maritalStatus": rng.choice(("MARRIED", "SINGLE", "DIVORCED", None)),
            "employment": {"employer": rng.choice(EMPLOYERS), "months": rng.randint(3, 240)},
            "debtLoad": Decimal(rng.randint(500, 6500)).scaleb(-2),
            "registrationAddress": address(rng),
            "email": None,
            "passport": {"series": f"{rng.randrange(10**4):04d}", "number": f"{income:06d}"},
        },
    )


def _change_participant(document: Document, turn: Turn) -> Actor | None:
    snapshot, draw = document.snapshot, turn.rng.random()
    if draw < 0.35:
        snapshot["income"] = f"{turn.rng.randint(45, 600) * 1000}.0"
        return None
    if draw < 0.6 and "phones" in snapshot:
        phones = snapshot["phones"]
        if len(phones) > 1:
            phones.pop(0)
        else:
            phones.append({"pid": new_id(turn.rng), "type": "WORK", "number": phone(turn.rng)})
        snapshot["phones"] = phones
        return None
    if draw < 0.8 and "employment" in snapshot:
        snapshot["employment"] = {
            "employer": turn.rng.choice(EMPLOYERS),
            "months": turn.rng.randint(1, 240),
        }
        return None
    snapshot["clientId"] = str(turn.rng.randrange(10**9, 10**10))
    return Actor(actors.ACTUALIZATOR)


def _create_realty(document: Document, turn: Turn) -> None:
    rng = turn.rng
    area = Decimal(rng.randint(180, 1800)) / 10
    document.snapshot.update(
        {
            "pid": document.id,
            "type": rng.choice(_REALTY),
            "assessedAmount": f"{rng.randint(900, 20_000)}000.0",
            "area": area,
            "cadastralNumber": None,
        }
    )
    _fill(
        document,
        turn,
        {
            "address": address(rng),
            "floor": rng.randint(1, 25),
            "createdAt": turn.at,
            "owners": [{"pid": new_id(rng), "name": " ".join(full_name(rng)), "share": "1/1"}],
            "appraisal": {"company": "ООО «Оценка-Сервис»", "date": turn.at[:10], "accepted": None},
        },
    )


def _change_realty(document: Document, turn: Turn) -> Actor | None:
    snapshot, draw = document.snapshot, turn.rng.random()
    if draw < 0.4:
        snapshot["assessedAmount"] = f"{turn.rng.randint(900, 20_000)}000.0"
        return None
    if draw < 0.6 and "appraisal" in snapshot:
        appraisal = snapshot["appraisal"]
        snapshot["appraisal"] = appraisal | {"accepted": not appraisal["accepted"]}
        return None
    snapshot["cadastralNumber"] = (
        f"77:{turn.rng.randint(1, 20):02d}:{turn.rng.randrange(10**7):07d}"
    )
    return Actor(actors.REGISTRAR)


def _create_car(document: Document, turn: Turn) -> None:
    rng = turn.rng
    brand, model = rng.choice(_CARS)
    document.snapshot.update(
        {
            "pid": document.id,
            "brand": brand,
            "model": model,
            "year": rng.randint(2012, 2026),
            "price": Decimal(rng.randint(5_000, 60_000) * 10_000).scaleb(-2),
        }
    )
    _fill(
        document,
        turn,
        {
            "vin": None,
            "createdAt": turn.at,
            "mileage": rng.randrange(150_000),
            "dealer": {"name": "ООО «Автоцентр Запад»", "city": "г. Тверь"},
            "options": [{"pid": new_id(rng), "name": "Зимний пакет", "price": "45000.0"}],
        },
    )


def _change_car(document: Document, turn: Turn) -> Actor | None:
    snapshot = document.snapshot
    if turn.rng.random() < 0.5:
        snapshot["vin"] = "X" + new_id(turn.rng)[:16].upper()
        return Actor(actors.CRM)
    snapshot["price"] += Decimal(turn.rng.randint(-9_000, 9_000) * 1_000).scaleb(-2)
    return None


def _create_task(document: Document, turn: Turn) -> None:
    code, name = turn.rng.choice(_TASKS)
    document.snapshot.update(
        {"pid": document.id, "type": code, "name": name, "status": "NEW", "assignee": None}
    )
    _fill(
        document,
        turn,
        {"dueAt": turn.at[:10], "createdAt": turn.at, "priority": turn.rng.randint(1, 5)},
    )


def _change_task(document: Document, turn: Turn) -> Actor | None:
    snapshot = document.snapshot
    if turn.last and snapshot["assignee"] is not None:
        snapshot["status"] = "DONE"
        return None
    others = [login for login in document.staff if login != snapshot["assignee"]]
    snapshot["assignee"] = turn.rng.choice(others)
    snapshot["status"] = "IN_PROGRESS"
    return Actor(actors.DISPATCHER)


_PARTICIPANT: Final = Plot(_create_participant, _change_participant)

# The entity and the life of each role that `shape.ROLES` may give an application.
PLOTS: Final[Mapping[str, tuple[str, Plot]]] = {
    "BORROWER": ("participant-role", _PARTICIPANT),
    "CO_BORROWER": ("participant-role", _PARTICIPANT),
    "GUARANTOR": ("participant-role", _PARTICIPANT),
    "REALTY": ("realty-info", Plot(_create_realty, _change_realty)),
    "CAR": ("product-car", Plot(_create_car, _change_car)),
    "TASK": ("product-task", Plot(_create_task, _change_task)),
}
PRODUCT_PLOT: Final = Plot(create_product, change_product)

# The kinds of entities that the simulator makes, the application first.
KINDS: Final = (APPLICATION, *dict.fromkeys(kind for kind, _ in PLOTS.values()))
