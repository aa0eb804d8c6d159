"""The metrics of reading the history, which each web process exposes."""

from typing import Final

from history.common.metric import MetricRegister

REGISTER: Final = MetricRegister("each web process")

EXPENSIVE_REFUSED: Final = REGISTER.add_counter(
    "annals_expensive_questions_refused_total",
    "requests",
    "Expensive questions that were refused because a web process was answering others, or as many"
    " of the same login as one may have.",
)
FALLBACK_REQUESTS: Final = REGISTER.add_counter(
    "annals_fallback_requests_total",
    "timelines",
    "Timelines that were to be asked of the old service: answered, failed (it did not answer in"
    " time, or wrongly), or cut (by the breaker, or because too many calls were under way).",
    result=("answered", "failed", "cut"),
)
LOGIN_REFUSED: Final = REGISTER.add_counter(
    "annals_login_share_refused_total",
    "requests",
    "Requests that were refused at once, because a web process was answering many others of the"
    " same login, expensive or slow ones among them.",
)
NEED_TO_KNOW_REFUSALS: Final = REGISTER.add_counter(
    "annals_need_to_know_refusals_total",
    "applications",
    "Applications that the rule of ANNALS_NEED_TO_KNOW did not open to a reader: it said no (rule),"
    " or it failed or gave no answer in time (error).",
    why=("rule", "error"),
)
