"""The metrics of reading the history, which each web process exposes."""

from typing import Final

from history.common.metric import MetricRegister

REGISTER: Final = MetricRegister("each web process")

EXPENSIVE_REFUSED: Final = REGISTER.add_counter(
    "annals_expensive_questions_refused_total",
    "requests",
    "Expensive questions that were refused because no place became free in time, because too many"
    " questions waited for a place, or because half of the places or of those waiting were of the"
    " same login.",
)
FALLBACK_REQUESTS: Final = REGISTER.add_counter(
    "annals_fallback_requests_total",
    "timelines",
    "Timelines for which the old service was needed: answered, failed (it answered wrongly, or not"
    " in time), or cut (it was not called, because too many calls had failed or were under way).",
    result=("answered", "failed", "cut"),
)
LOGIN_REFUSED: Final = REGISTER.add_counter(
    "annals_login_share_refused_total",
    "requests",
    "Requests that were refused because the same login already had the most requests that a login"
    " may have at a time, and one of these was expensive or slow.",
)
NEED_TO_KNOW_REFUSALS: Final = REGISTER.add_counter(
    "annals_need_to_know_refusals_total",
    "applications",
    "Applications that were not shown to a viewer, because the rule of ANNALS_NEED_TO_KNOW refused"
    " them (rule), or because the rule failed or did not answer in time (error).",
    why=("rule", "error"),
)
