"""Settings of who may see what, and of what is recorded about it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from annals.fields.messages import Messages


class Access(Messages, frozen=True, kw_only=True):
    """Who may log in, from where, how often, and what is recorded."""

    journal_days: Annotated[
        int,
        Meta(
            ge=1,
            le=3650,
            description="Days for which the access journal is kept: who looked at what.",
        ),
    ] = 365
    journal_failure: Annotated[
        str,
        Meta(
            pattern="^(refuse|answer)$",
            description="What happens to a request that cannot be written to the access journal. "
            "`refuse`: it gets 503 and shows nothing; `answer`: it is answered, counted and an "
            "alert fires.",
        ),
    ] = "refuse"
    need_to_know: Annotated[
        Annotated[str, Meta(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$")] | None,
        Meta(
            description="Dotted path of a Python function that decides who may see which "
            "application, in addition to the roles; see docs/access.md. Unset: the roles alone."
        ),
    ] = None
    oidc_file: Annotated[
        Path | None,
        Meta(
            description="TOML or JSON that declares the identity providers: login for people, "
            "Bearer tokens for programs; see docs/access.md."
        ),
    ] = None
    session_hours: Annotated[
        int,
        Meta(ge=1, le=168, description="Hours after which a login on the screens ends."),
    ] = 10
    session_idle_minutes: Annotated[
        int,
        Meta(ge=2, le=10_080, description="Minutes without a request that end a login."),
    ] = 60
    session_renew_minutes: Annotated[
        int,
        Meta(
            ge=1,
            le=10_080,
            description="Minutes after which the identity provider is asked again whether a "
            "person may still log in. The person notices nothing.",
        ),
    ] = 60
    trusted_proxies: Annotated[
        tuple[str, ...],
        Meta(
            description="Addresses or networks (CIDR) of the proxies whose `X-Forwarded-For` is "
            "believed, comma-separated. Unset: nobody's."
        ),
    ] = ()
    operator_networks: Annotated[
        tuple[str, ...],
        Meta(
            description="Addresses or networks (CIDR) of operators, comma-separated: failed logins "
            "elsewhere do not delay a login from here. This machine is always one."
        ),
    ] = ()
