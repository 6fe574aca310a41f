"""Which addresses may be connected to when nobody of ours has chosen them.

A URL is looked at twice. Its text is checked first, for what can be told without asking anybody. Then, at the moment
of connecting, the IP addresses that its host really stands for are checked, and the connection goes to one of those: a
name that resolves to something else a moment later (DNS rebinding) gains nothing, nor does any spelling of an address.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from thresher.corpus.errors import CorpusError
from thresher.corpus.ingestion.web.addresses import InvalidAddress, canonical

LONGEST = 2_048
"""Characters of a URL. Each passage of a page is shown with its address, out of the same budget."""

IP = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_LOCAL_NAMES = ("localhost", "local", "internal", "intranet", "lan", "home", "corp", "home.arpa", "localdomain")
"""Last labels of names that no public host has."""

_NOT_PUBLIC = tuple(
    ipaddress.ip_network(network)
    for network in (
        "100.64.0.0/10",  # shared by carriers; Alibaba's metadata service is in it
        "168.63.129.16/32",  # Azure's host, a public address from inside only
        "192.0.0.0/24",  # protocol assignments; Oracle's metadata service is in it
        "192.88.99.0/24",  # 6to4 relays
        "fec0::/10",  # site-local, before unique local ones
        "64:ff9b:1::/48",  # translation within a site
        "2001::/32",  # Teredo: what it leads to cannot be told
    )
)
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")
"""NAT64: the last 32 bits are an IPv4 address."""
_COMPATIBLE = ipaddress.ip_network("::/96")

# Ports that the Fetch standard of WHATWG keeps browsers from: what listens there is no web server, and some of it
# does what a request's lines say (SMTP, Redis is left out there and stands here).
_BAD_PORTS = frozenset(
    map(
        int,
        "1 7 9 11 13 15 17 19 20 21 22 23 25 37 42 43 53 69 77 79 87 95 101 102 103 104 109 110 111 113 115 117 119 "
        "123 135 137 139 143 161 179 389 427 465 512 513 514 515 526 530 531 532 540 548 554 556 563 587 601 636 989 "
        "990 993 995 1719 1720 1723 2049 2375 2379 3306 3659 4045 4190 5060 5061 5432 6000 6379 6566 6665 6666 6667 "
        "6668 6669 6679 6697 9200 10080 11211 27017".split(),
    )
)


class Blocked(CorpusError):
    """The address must not be connected to; nothing was sent."""

    code = "address_blocked"


@dataclass(frozen=True, slots=True)
class Exemption:
    """A host that may be reached although it is not public, as the operator has it: a self-hosted search engine.

    Attributes:
        name: the host name, in lower case; "" where a network is exempt.
        network: addresses that are exempt; None where a name is.
        port: the only port; None for all.
    """

    name: str = ""
    network: _Network | None = None
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> Exemption:
        """`HOST`, `HOST:PORT`, `ADDRESS`, `[ADDRESS]:PORT` or `NETWORK/BITS`.

        Raises:
            ValueError: it is none of these.
        """
        bare = text.strip().lower()
        if "/" in bare:
            return cls(network=ipaddress.ip_network(bare))
        parts = urlsplit(f"//{bare}" if bare.count(":") < 2 or bare.startswith("[") else f"//[{bare}]")
        if not parts.hostname or parts.path or parts.username is not None:
            raise ValueError(f"{text!r} is neither HOST[:PORT] nor NETWORK/BITS")
        try:
            return cls(network=ipaddress.ip_network(parts.hostname), port=parts.port)
        except ValueError:
            return cls(name=parts.hostname.rstrip("."), port=parts.port)

    def covers(self, host: str, address: IP | None, port: int) -> bool:
        """Whether it exempts a connection to `address`, which `host` stands for; None: it is not known yet."""
        if self.port is not None and self.port != port:
            return False
        if self.network is None:
            return self.name == host
        return address is not None and address.version == self.network.version and address in self.network


@dataclass(frozen=True, slots=True)
class Guard:
    """Decides what may be connected to. `exempt` hosts may be, whatever their addresses."""

    exempt: tuple[Exemption, ...] = ()

    @classmethod
    def allowing(cls, hosts: Iterable[str]) -> Guard:
        """A guard with exemptions as `Exemption.parse` reads them.

        Raises:
            ValueError: one cannot be read.
        """
        return cls(tuple(Exemption.parse(host) for host in hosts))

    def check_url(self, text: str) -> str:
        """The canonical form of a URL whose text has nothing against it.

        Raises:
            InvalidAddress: it is no http(s) URL, or carries a name or password.
            Blocked: its host or port is not one of the public web.
        """
        url = canonical(text)
        if len(url) > LONGEST:
            raise InvalidAddress(f"{url[:100]}… is longer than the {LONGEST:,} characters that an address may have")
        parts = urlsplit(url)
        host = (parts.hostname or "").rstrip(".")
        if not host or any(ord(character) < 33 or character in '\\%<>"^`{|}' for character in host):
            raise InvalidAddress(f"{text!r} is not a URL: its host has characters that no host has")
        port = parts.port if parts.port is not None else (443 if parts.scheme == "https" else 80)
        address = _literal(host)
        if self._exempted(host, address, port):
            return url
        if port in _BAD_PORTS or port == 0:
            raise Blocked(f"port {port} of {host} is not one of the web")
        if address is not None:
            self.check_address(address, host, port)
        elif host.rpartition(".")[2] in _LOCAL_NAMES or any(host.endswith(f".{name}") for name in _LOCAL_NAMES):
            raise Blocked(f"{host} is the name of a machine that is not on the public web")
        elif "." not in host and not host.isdigit() and not host.startswith("0x"):
            raise Blocked(f"{host} has no domain, so it names a machine of this network")
        return url

    def check_address(self, address: IP, host: str, port: int) -> None:
        """Let a connection to `address`, which `host` stands for, pass.

        Raises:
            Blocked: it is not an address of the public web.
        """
        host = host.lower().rstrip(".")
        if self._exempted(host, address, port):
            return
        for real in _meant(address):
            what = _why_not(real)
            if what:
                shown = str(address) if host == str(address) else f"{host} ({address})"
                raise Blocked(f"{shown} is {what}, not on the public web; an operator can allow it by `web_allow`")

    def _exempted(self, host: str, address: IP | None, port: int) -> bool:
        return any(exemption.covers(host, address, port) for exemption in self.exempt)


def _literal(host: str) -> IP | None:
    """The address that a host is written as; None for a name, and for spellings that only a resolver understands."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _meant(address: IP) -> Iterator[IP]:
    """An address and the IPv4 address inside it, if it has one."""
    yield address
    if isinstance(address, ipaddress.IPv4Address):
        return
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and (address in _TRANSLATED or address in _COMPATIBLE):
        inner = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    if inner is not None:
        yield inner


def _why_not(address: IP) -> str | None:
    """What an address is that is not public; None for one that is."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            return "an address of one network interface"
        if address.ipv4_mapped is not None:
            return None  # what counts is the address inside
    for what, is_so in (
        ("a loopback address", address.is_loopback),
        ("a link-local address", address.is_link_local),
        ("no host's address", address.is_unspecified),
        ("a multicast address", address.is_multicast),
        ("a private address", address.is_private),
        ("a reserved address", address.is_reserved and address not in _TRANSLATED),
    ):
        if is_so:
            return what
    if any(address.version == network.version and address in network for network in _NOT_PUBLIC):
        return "an address with a special use"
    return None
