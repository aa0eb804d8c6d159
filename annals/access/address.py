"""The address of a client, behind proxies that ANNALS_TRUSTED_PROXIES names."""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from django.conf import settings
from django.http import HttpRequest

from annals import env

Network = IPv4Network | IPv6Network
UNKNOWN = "unknown"
WIDEST = 256


def trusted(given: env.Settings) -> tuple[Network, ...]:
    """ANNALS_TRUSTED_PROXIES. Raises env.SettingError."""
    name = "ANNALS_TRUSTED_PROXIES"
    try:
        found = tuple(ip_network(each) for each in given.trusted_proxies)
    except ValueError as error:
        raise env.SettingError(f"{name} is wrong: {error}. See docs/settings.md.") from None
    for each in found:
        if each.prefixlen < 8:  # X-Forwarded-For is what anybody writes
            raise env.SettingError(
                f"{name} is wrong: {each} is more than any network of one bank, so everybody would "
                "be trusted. See docs/settings.md."
            )
    return found


def wide(networks: Sequence[Network]) -> list[str]:
    """Those with more than proxies: clients in them choose the address that is written down."""
    return [str(each) for each in networks if each.num_addresses > WIDEST]


def address_of(request: HttpRequest) -> str:
    """The address of the client of a request."""
    meta = request.META
    return client(
        meta.get("REMOTE_ADDR", ""), meta.get("HTTP_X_FORWARDED_FOR", ""), settings.TRUSTED_PROXIES
    )


def client(peer: str, forwarded: str, trusted: Sequence[Network]) -> str:
    """The address that asks. peer: the other end of the connection. forwarded: X-Forwarded-For,
    read from its end: only what a trusted proxy added counts."""
    address = _plain(peer)
    for hop in reversed([each.strip() for each in forwarded.split(",") if each.strip()]):
        following = _plain(hop)
        if address is None or following is None or not any(address in each for each in trusted):
            break
        address = following
    return str(address or UNKNOWN)


def _plain(text: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(text)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found
