"""Draws small pictures as SVG: a bar for each day, and the steps of a number over time."""

from collections.abc import Sequence
from datetime import date, datetime
from operator import attrgetter
from typing import NamedTuple

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from history.common.moment_filter import when

WIDTH, HEIGHT, EDGE = 720, 60, 6
# The vertical position and height of each mark of a day. Marks are above or below the bars.
MARKS = {"gone": (0, 5), "lost": (6, 5), "packed": (61, 3), "archived": (65, 3)}
WITH_MARKS = 68


class ValueStep(NamedTuple):
    """A number that is valid from a moment on; `text` is the number as people write it."""

    at: datetime
    number: float
    text: str


class DayBar(NamedTuple):
    """The bar of one day.

    Attributes:
        day: The day.
        counts: How many versions each kind has, in the order of the kinds.
        url: The address that the bar links to.
        text: A description of the day, which the browser shows as the tooltip of the bar.
        marks: The marks to draw at the bar. Each is a key of MARKS.
    """

    day: date
    counts: Sequence[int]
    url: str
    text: str
    marks: Sequence[str] = ()

    @property
    def total(self) -> int:
        return sum(self.counts)


def draw_step_chart(steps: Sequence[ValueStep], until: datetime) -> SafeString:
    """Draw a number over time as a line with steps.

    The captions are the highest and lowest number, and the first and last day. The table on the
    same page has all the numbers.
    """
    lowest, highest = (pick(steps, key=attrgetter("number")) for pick in (min, max))
    low, high = lowest.number, highest.number
    begin = steps[0].at
    seconds = max(1.0, (until - begin).total_seconds())

    def place(at: datetime, number: float) -> str:
        share = (number - low) / (high - low) if high > low else 0.5
        x = EDGE + (WIDTH - 2 * EDGE) * (at - begin).total_seconds() / seconds
        return f"{x:.1f},{HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * share:.1f}"

    ends = [*(step.at for step in steps[1:]), until]
    points = " ".join(
        place(at, step.number)
        for step, end in zip(steps, ends, strict=True)
        for at in (step.at, end)
    )
    return format_html(
        '<span>{}</span><svg class="steps" viewBox="0 0 {} {}" aria-hidden="true" '
        'preserveAspectRatio="none"><polyline points="{}"/></svg><span>{}</span>'
        "<figcaption>{}</figcaption>",
        highest.text,
        WIDTH,
        HEIGHT,
        points,
        lowest.text,
        when(begin, "date") + when(until, "date"),
    )


def draw_day_bars(days: Sequence[DayBar], first: date, last: date) -> SafeString:
    """Draw a bar for each day, with a segment for each kind. Each bar is a link.

    The table on the same page has the same links for the keyboard and for screen readers.
    """
    count = (last - first).days + 1
    width = max(1.5, min(WIDTH / count * 0.8, 24))
    step = (WIDTH - width) / max(1, count - 1)  # the first and the last bar stand at the ends
    highest_count = max((day_bar.total for day_bar in days), default=1)
    bars = format_html_join(
        "",
        '<a href="{}" tabindex="-1"><title>{}</title>'
        '<rect class="hit" x="{}" y="0" width="{}" height="{}"/>{}</a>',
        (
            (
                day_bar.url,
                day_bar.text,
                f"{x - (step - width) / 2:.2f}",
                f"{step:.2f}",
                WITH_MARKS,
                bar,
            )
            for day_bar in days
            for x in [(day_bar.day - first).days * step]
            for bar in [_draw_bar(day_bar, x, width, highest_count)]
        ),
    )
    return format_html(
        '<svg class="bars" viewBox="0 0 {} {}" aria-hidden="true" preserveAspectRatio="none">'
        '<rect class="ground" x="0" y="{}" width="{}" height="1"/>{}</svg>',
        WIDTH,
        WITH_MARKS,
        HEIGHT - 1,
        WIDTH,
        bars,
    )


def _draw_bar(day_bar: DayBar, x: float, width: float, highest_count: int) -> SafeString:
    parts: list[tuple[str, str, str]] = []
    top = HEIGHT - 1.0
    for kind, count in enumerate(day_bar.counts):
        if count:
            height = max(2.0, (HEIGHT - 2 * EDGE) * count / highest_count)
            top = max(0.0, top - height)
            parts.append((f"kind-{kind}", f"{top:.2f}", f"{height:.2f}"))
    parts += [(mark, str(MARKS[mark][0]), str(MARKS[mark][1])) for mark in day_bar.marks]
    rect = '<rect class="{}" x="{}" width="{}" y="{}" height="{}"/>'
    places = ((name, f"{x:.2f}", f"{width:.2f}", *position) for name, *position in parts)
    return format_html_join("", rect, places)
