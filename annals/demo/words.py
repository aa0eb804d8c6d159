"""The bank of the demo: its people and services, and the vocabulary of its applications."""

from csv import DictReader
from pathlib import Path
from random import Random
from typing import Final

# Imported by `annals people import` too; the login of a service is its client id.
PEOPLE: Final = Path(__file__).with_name("people.csv")
with PEOPLE.open(encoding="utf-8") as _rows:
    STAFF: Final = tuple(row["login"] for row in DictReader(_rows) if row["kind"] == "person")

# They are not in PEOPLE: the product must show a login that it does not know.
NEWCOMERS: Final = ("v.novikova", "d.andreev2")

ACTUALIZATOR: Final = "top-data-client-actualizator"
REGISTRAR: Final = "top-encumbrance-registrar"
RECOGNIZER: Final = "top-document-recognizer"
DISPATCHER: Final = "top-task-dispatcher"
RATES: Final = "top-rate-calculator"
CRM: Final = "top-crm-sync"
ARCHIVE: Final = "top-archive-keeper"

# The front ends that people use: the client id is the front end's, the author is the person.
FRONT_ENDS: Final = ("top-front-office", "top-partner-portal", "top-underwriting-desk")


def _listed(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_MEN = _listed("""
Александр Алексей Андрей Антон Артём Борис Вадим Валерий Виктор Виталий Владимир Геннадий""")
_WOMEN = _listed("""
Алина Анастасия Анна Валентина Вера Виктория Галина Дарья Диана Евгения Екатерина Елена""")
_FATHERS = _listed("""
Александров Алексеев Андреев Антонов Борисов Викторов Владимиров Геннадьев Денисов""")
_SURNAMES = _listed("""
Абрамов Алёшин Артемьев Бирюков Блинов Бобров Борисов Васильев Вишняков Воробьёв
Горбунов Горелов Давыдов Дементьев Ермаков Зайцев Зимин Ильин Карпов Киселёв Ковалёв Колпаков""")

CITIES: Final = (
    ("г. Москва", "ул. Академика Королёва"),
    ("г. Санкт-Петербург", "пр-кт Просвещения"),
    ("г. Екатеринбург", "ул. Малышева"),
    ("г. Казань", "ул. Чистопольская"),
    ("г. Новосибирск", "Красный пр-кт"),
)
EMPLOYERS: Final = (
    "ООО «Ромашка»",
    "АО «Северный ветер»",
    "ГБУЗ «Городская больница № 4»",
)
BRANCHES: Final = (
    ("7701", "ДО «Тверской»"),
    ("7708", "ДО «На Сретенке»"),
    ("7803", "ДО «Невский»"),
)
# Code, name, amount in thousands of roubles, years, rate in per cent.
OFFERS: Final = {
    "mortgage": (
        ("MORTGAGE_SECONDARY", "Ипотека на готовое жильё", (1_500, 18_000), (10, 30), (15, 22)),
        ("MORTGAGE_PRIMARY", "Ипотека на новостройку", (2_000, 25_000), (10, 30), (14, 21)),
        ("MORTGAGE_FAMILY", "Семейная ипотека", (2_000, 12_000), (15, 30), (5, 6)),
    ),
    "car": (
        ("CAR_NEW", "Автокредит на новый автомобиль", (700, 6_000), (2, 7), (13, 21)),
        ("CAR_USED", "Автокредит на автомобиль с пробегом", (300, 3_000), (1, 5), (17, 25)),
    ),
    "consumer": (
        ("CONSUMER_CASH", "Потребительский кредит", (50, 3_000), (1, 7), (19, 34)),
        ("CONSUMER_REFINANCE", "Рефинансирование", (100, 5_000), (2, 7), (17, 29)),
    ),
}
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
OUTCOMES: Final = (
    *(("ISSUED", "Кредит выдан"),) * 3,
    ("REJECTED", "Отказ банка"),
    ("WITHDRAWN", "Отказ клиента"),
)
PAPERS: Final = (
    ("PASSPORT", "Паспорт гражданина РФ"),
    ("SNILS", "СНИЛС"),
    ("INCOME", "Справка о доходах"),
    ("EMPLOYMENT", "Копия трудовой книжки"),
    ("APPRAISAL", "Отчёт об оценке"),
    ("EGRN", "Выписка из ЕГРН"),
    ("SALE_CONTRACT", "Договор купли-продажи"),
    ("POLICY", "Страховой полис"),
)
TASKS: Final = (
    ("CALL_CLIENT", "Позвонить клиенту"),
    ("CHECK_INCOME", "Проверить доход"),
    ("CHECK_REALTY", "Проверить объект залога"),
    ("PREPARE_DEAL", "Подготовить сделку"),
)
REALTY: Final = ("Квартира", "Апартаменты", "Жилой дом", "Земельный участок", "Комната")
CARS: Final = (
    *(("LADA", "Vesta"), ("LADA", "Granta"), ("Haval", "Jolion"), ("Chery", "Tiggo 7 Pro")),
    *(("Geely", "Monjaro"), ("УАЗ", "Патриот"), ("Москвич", "3")),
)
SENTENCES: Final = (
    "Клиент подтвердил доход справкой по форме банка.",
    "Просит перенести сделку на следующую неделю, созвонились.",
    "Отчёт об оценке получен, замечаний нет.",
    "Запрошена выписка из ЕГРН, срок три рабочих дня.",
    "Первоначальный взнос подтверждён выпиской со счёта.",
    "Супруг дал нотариальное согласие на залог.",
    "Страховая компания согласовала тариф, полис в работе.",
    "Дозвониться не удалось, отправлено сообщение.",
    "Проверка службы безопасности пройдена без замечаний.",
)
_SIZED: Final = tuple((text, len(text.encode()) + 1) for text in SENTENCES)


def full_name(rng: Random) -> tuple[str, str, str]:
    """Surname, name and patronymic that agree in gender."""
    surname, father = rng.choice(_SURNAMES), rng.choice(_FATHERS)
    if rng.random() < 0.5:
        return surname, rng.choice(_MEN), father + "ич"
    return surname + "а", rng.choice(_WOMEN), father + "на"


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
    city, street = rng.choice(CITIES)
    return f"{city}, {street}, д. {1 + rng.getrandbits(6)}, кв. {1 + rng.getrandbits(8)}"
