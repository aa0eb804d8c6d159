"""Who makes the changes: the bank's people by login, its services by client id."""

import csv
from typing import Final, Literal, NamedTuple, TextIO


class Person(NamedTuple):
    """A row of `annals people import`; the login of a service is its client id."""

    login: str
    full_name: str
    kind: Literal["person", "service"]


_STAFF = """
m.prygunov Прыгунов Максим|a.belova Белова Анна|s.kuznetsov Кузнецов Сергей
e.orlova Орлова Екатерина|d.fadeev Фадеев Дмитрий|o.sizova Сизова Ольга
i.gromov Громов Игорь|t.lapina Лапина Татьяна|v.shestakov Шестаков Владимир
n.zueva Зуева Наталья|a.rybakov Рыбаков Алексей|m.ershova Ершова Мария
p.titov Титов Павел|k.vlasova Власова Ксения|r.galimov Галимов Ринат
l.denisova Денисова Людмила|g.avanesyan Аванесян Гагик|y.markova Маркова Юлия
a.nosov Носов Антон|i.yudina Юдина Ирина|k.baranov Баранов Кирилл
s.chernova Чернова Светлана|d.safin Сафин Дамир|e.popova Попова Елена
n.kolesnikov Колесников Никита|v.rodionova Родионова Вера|f.tarasov Тарасов Фёдор
a.ageeva Агеева Алина|o.melnik Мельник Олег|z.khasanova Хасанова Зульфия
m.losev Лосев Михаил|d.efimova Ефимова Дарья|a.shubin Шубин Артём
p.savelyeva Савельева Полина|e.zhdanov Жданов Евгений|l.krylova Крылова Лариса
b.dorzhiev Доржиев Баир|s.panina Панина София|v.golubev Голубев Виктор
i.moroz Мороз Инна|a.terentyev Терентьев Андрей|m.gusarova Гусарова Марина
g.sobolev Соболев Георгий|e.nikulina Никулина Евгения|r.abdullin Абдуллин Руслан
o.vetrova Ветрова Оксана|d.kalinin Калинин Денис|t.fomina Фомина Тамара
s.yakushev Якушев Станислав|a.osipova Осипова Арина|n.belyaev Беляев Николай
v.tsareva Царёва Валентина|k.mironov Миронов Константин|y.stepanova Степанова Яна
i.petukhov Петухов Илья|l.gavrilova Гаврилова Лидия|a.kazakov Казаков Аркадий
e.shilova Шилова Эльвира|m.drozdov Дроздов Матвей|s.isaeva Исаева Снежана
"""

_SERVICES = """
top-data-client-actualizator Актуализатор данных клиента|top-scoring-engine Скоринг
top-encumbrance-registrar Регистрация обременений|top-document-recognizer Распознавание документов
top-task-dispatcher Распределение задач|top-rate-calculator Расчёт ставок
top-crm-sync Обмен с CRM|top-archive-keeper Архив заявок|top-front-office Фронт-офис
top-partner-portal Портал партнёров|top-underwriting-desk Рабочее место андеррайтера
"""


def _rows(text: str, kind: Literal["person", "service"]) -> tuple[Person, ...]:
    cells = text.strip().replace("\n", "|").split("|")
    halves = (cell.partition(" ") for cell in cells)
    return tuple(Person(login, full_name, kind) for login, _, full_name in halves)


STAFF: Final = tuple(person.login for person in _rows(_STAFF, "person"))
PEOPLE: Final = _rows(_STAFF, "person") + _rows(_SERVICES, "service")

# New people who are not in the list yet: the product must show a login that it does not know.
NEWCOMERS: Final = ("v.novikova", "d.andreev2")

ACTUALIZATOR: Final = "top-data-client-actualizator"
SCORING: Final = "top-scoring-engine"
REGISTRAR: Final = "top-encumbrance-registrar"
RECOGNIZER: Final = "top-document-recognizer"
DISPATCHER: Final = "top-task-dispatcher"
RATES: Final = "top-rate-calculator"
CRM: Final = "top-crm-sync"
ARCHIVE: Final = "top-archive-keeper"

# The front ends that people use: the client id is the front end's, the author is the person.
FRONT_ENDS: Final = ("top-front-office", "top-partner-portal", "top-underwriting-desk")


def write_csv(out: TextIO) -> int:
    """Write PEOPLE as `annals people import` reads them; gives the number of rows."""
    table = csv.writer(out, lineterminator="\n")
    table.writerow(Person._fields)
    table.writerows(PEOPLE)
    return len(PEOPLE)
