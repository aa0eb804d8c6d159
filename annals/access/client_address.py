"""Finds the address of a client behind the proxies that ANNALS_TRUSTED_PROXIES names."""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from django.conf import settings
from django.http import HttpRequest

from annals.configuration import env
from annals.configuration.fields import Settings

IpNetwork = IPv4Network | IPv6Network
UNKNOWN = "unknown"
WIDE_NETWORK_ADDRESSES = 256


def load_trusted_proxies(annals_settings: Settings) -> tuple[IpNetwork, ...]:
    """Return the networks of ANNALS_TRUSTED_PROXIES.

    Raises:
        env.SettingError: An entry is not a network, or has a prefix shorter than /8.
    """
    name = "ANNALS_TRUSTED_PROXIES"
    try:
        networks = tuple(ip_network(text) for text in annals_settings.trusted_proxies)
    except ValueError as error:
        raise env.SettingError(f"{name} is wrong: {error}. See docs/settings.md.") from None
    for cidr in networks:
        if cidr.prefixlen < 8:  # every client can write X-Forwarded-For
            raise env.SettingError(
                f"{name} is wrong: {cidr} has a prefix shorter than /8, so everybody "
                "would be trusted. See docs/settings.md."
            )
    return networks


def find_wide_networks(networks: Sequence[IpNetwork]) -> list[str]:
    """Return the networks that are so large that they may have clients besides the proxies.

    Annals would trust such a client like a proxy: with the header X-Forwarded-For, the client could
    choose the address that the journal and the logs record.
    """
    return [str(network) for network in networks if network.num_addresses > WIDE_NETWORK_ADDRESSES]


def get_client_address(request: HttpRequest) -> str:
    """Return the address of the client that sent the request."""
    meta = request.META
    return find_client_address(
        meta.get("REMOTE_ADDR", ""), meta.get("HTTP_X_FORWARDED_FOR", ""), settings.TRUSTED_PROXIES
    )


def find_client_address(peer: str, forwarded: str, trusted: Sequence[IpNetwork]) -> str:
    """Return the address of the client, or `UNKNOWN`.

    Args:
        peer: The address at the other end of the connection.
        forwarded: The header X-Forwarded-For. It is read from its end, because only the entries
            that trusted proxies added can be believed.
        trusted: The networks of the proxies.
    """
    address = _parse_address(peer)
    for hop in reversed([text.strip() for text in forwarded.split(",") if text.strip()]):
        following = _parse_address(hop)
        if (
            address is None
            or following is None
            or not any(address in network for network in trusted)
        ):
            break
        address = following
    return str(address or UNKNOWN)


def _parse_address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
