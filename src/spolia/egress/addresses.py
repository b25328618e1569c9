"""Which addresses may be connected to: only public ones for untrusted input (request forgery, CWE-918)."""

import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias

from urllib3.util.connection import create_connection

from spolia.errors import EgressRefused

IP: TypeAlias = IPv4Address | IPv6Address
_TRANSLATED = IPv6Network("64:ff9b::/96")  # IPv4 addresses as a translator writes them (RFC 6052)
_COMPATIBLE = IPv6Network("::/96")  # IPv4 addresses as they were once written (RFC 4291)

_AT_ONCE: list[tuple[int, int, int | bytes]] = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
"""What is written is sent: else a request's body waits until its head is acknowledged, which may take 40 ms."""


def nonpublic_kind(address: str) -> str:
    """Return the kind of an address that is not public, such as `loopback`; empty for a public one."""
    target = _unwrap_ipv4(ip_address(address.partition("%")[0]))  # behind `%` stands the network card
    kinds = {
        "loopback": target.is_loopback,
        "link-local": target.is_link_local,
        "multicast": target.is_multicast,
        "unspecified": target.is_unspecified,
        "private": target.is_private,
        "reserved": target.is_reserved or not target.is_global,  # 100.64.0.0/10 is neither private nor global
    }
    return next((kind for kind, holds in kinds.items() if holds), "")


def _unwrap_ipv4(address: IP) -> IP:
    """Return the IPv4 address that an IPv6 address leads to, or the address itself."""
    if not isinstance(address, IPv6Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _TRANSLATED or (address in _COMPATIBLE and int(address) > 1):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def open_socket(host: str, port: int, timeout_s: float | None, *, public: bool) -> socket.socket:
    """Open a socket to a host at an address that was checked, so that no second look-up can answer otherwise."""
    entries = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in entries))
    allowed = [address for address in addresses if not public or not nonpublic_kind(address)]
    if not allowed:
        kinds = ", ".join(f"{address} ({nonpublic_kind(address)})" for address in addresses[:3])
        raise EgressRefused(
            f"{host} is at {kinds}, which is not a public address. If it is meant to be asked, allow it: "
            f"allow=({host!r},); in a file of sources (--sources), allow: [{host!r}]."
        )
    last_error: OSError | None = None
    for address in allowed:
        try:
            return create_connection((address, port), timeout_s, socket_options=_AT_ONCE)
        except OSError as error:
            last_error = error
    assert last_error is not None
    raise last_error
