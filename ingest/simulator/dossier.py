"""The lists inside an application: documents, conditions, comments, the payment schedule."""

from datetime import date, timedelta
from decimal import Decimal
from random import Random
from typing import Any, Final

from ingest.simulator.mutable_snapshot import new_id
from ingest.simulator.words import remark, sentence

Item = dict[str, Any]

PAPERS: Final = (
    ("PASSPORT", "Паспорт гражданина РФ"),
    ("SNILS", "СНИЛС"),
    ("INCOME", "Справка о доходах"),
    ("EMPLOYMENT", "Копия трудовой книжки"),
    ("APPRAISAL", "Отчёт об оценке"),
    ("EGRN", "Выписка из ЕГРН"),
    ("SALE_CONTRACT", "Договор купли-продажи"),
    ("POLICY", "Страховой полис"),
    ("MARRIAGE", "Свидетельство о браке"),
    ("CONSENT", "Согласие супруга"),
    ("ACCOUNT", "Выписка по счёту"),
    ("MATERNITY", "Сертификат на материнский капитал"),
)
_CONDITIONS: Final = (
    ("INSURE_LIFE", "Личное страхование до выдачи"),
    ("INSURE_OBJECT", "Страхование предмета залога"),
    ("DOWN_PAYMENT", "Подтвердить первоначальный взнос"),
    ("CLOSE_CARD", "Закрыть кредитную карту"),
    ("SPOUSE_CONSENT", "Нотариальное согласие супруга"),
    ("SALARY", "Перевести зарплату в банк"),
    ("FRESH_EGRN", "Выписка из ЕГРН не старше 30 дней"),
)
PAPER_BYTES: Final = 165
CONDITION_BYTES: Final = 150
COMMENT_BYTES: Final = 270
PAYMENT_BYTES: Final = 122


def paper(rng: Random, today: str) -> Item:
    """A document of the client; today: ISO date."""
    code, name = PAPERS[int(rng.random() * len(PAPERS))]
    return {
        "pid": new_id(rng),
        "type": code,
        "name": name,
        "status": "NEW",
        "date": today,
        "pages": 1 + rng.getrandbits(3),
        "rejectReason": None,
    }


def condition(rng: Random) -> Item:
    code, name = _CONDITIONS[int(rng.random() * len(_CONDITIONS))]
    return {"pid": new_id(rng), "code": code, "name": name, "done": False, "doneAt": None}


def comment(rng: Random, at: str, by: str, size: int = 0) -> Item:
    """A remark of a person; size: bytes of its text, 0 for one sentence."""
    text = remark(rng, size) if size else sentence(rng)
    return {"pid": new_id(rng), "at": at, "by": by, "text": text}


def schedule(rng: Random, rows: int, debt: Decimal, rate: Decimal, first: date) -> list[Item]:
    """The payments of an annuity, one for each month; the debt is repaid in `rows` of them."""
    payments: list[Item] = [
        {"pid": new_id(rng), "date": (first + timedelta(days=30 * n)).isoformat()}
        for n in range(1, rows + 1)
    ]
    count_payments(payments, debt, rate)
    return payments


def count_payments(payments: list[Item], debt: Decimal, rate: Decimal) -> None:
    """Fill in what each payment repays, in place."""
    whole = annuity(debt, rate, len(payments))
    for payment in payments:
        interest = (debt * rate / 1200).quantize(_KOPECK)
        principal = min(whole - interest, debt)
        debt -= principal
        payment.update(principal=principal, interest=interest, rest=str(debt))


_KOPECK = Decimal("0.01")


def annuity(debt: Decimal, rate: Decimal, months: int) -> Decimal:
    """The monthly payment, exact to the kopeck; rate: percent per year, above 0."""
    monthly = float(rate) / 1200
    return Decimal(round(float(debt) * monthly / (1 - (1 + monthly) ** -months), 2)).quantize(
        _KOPECK
    )
