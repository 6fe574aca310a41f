"""What a request of a policy or a page may be sent to: every spelling of a place that is not the public web."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest

from thresher.corpus.ingestion.web.addresses import InvalidAddress
from thresher.corpus.web.connections import GuardedTransport, Resolve
from thresher.corpus.web.guard import IP, Blocked, Exemption, Guard

# PORT stands for a port on which a server of the test really listens.
SPELLINGS = [
    # loopback
    "http://127.0.0.1:PORT/",
    "http://127.0.0.2:PORT/",
    "http://127.255.255.254:PORT/",
    "http://127.1:PORT/",
    "http://127.0.1:PORT/",
    "http://2130706433:PORT/",
    "http://0x7f000001:PORT/",
    "http://0x7f.0x0.0x0.0x1:PORT/",
    "http://0x7f.1:PORT/",
    "http://017700000001:PORT/",
    "http://0177.0.0.1:PORT/",
    "http://0177.0.0.01:PORT/",
    "http://127.0.0.1.:PORT/",
    "HTTP://127.0.0.1:PORT/",
    "http:\\\\127.0.0.1:PORT\\",
    "http:/\\127.0.0.1:PORT/",
    "http://%31%32%37.0.0.1:PORT/",
    "http://%31%32%37%2e0%2e0%2e1:PORT/",
    "http://127.000.000.001:PORT/",
    "http://１２７．０．０．１:PORT/",
    "http://1\u00ad27.0.0.1:PORT/",
    "http://127.0.0.1\u200b:PORT/",
    "http://127.0.0.1%09:PORT/",
    "http://127.0.0.1;public.example:PORT/",
    "http://127.0.0.1:PORT?@public.example/",
    "http://127.0.0.1:PORT#@public.example/",
    "http:///127.0.0.1:PORT/",
    "http:127.0.0.1:PORT/",
    "http://127.0.0.1\n:PORT/",
    "\0http://127.0.0.1:PORT/",
    "http://[::1%25lo]:PORT/",
    "http://[::ffff:127.0.0.1%lo]:PORT/",
    "http://[::ffff:0:127.0.0.1]:PORT/",
    "http://loc\u00adalhost:PORT/",
    "http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ:PORT/",
    "http://locaLho\u017ft:PORT/",
    "http://localhost。:PORT/",
    "http://①②⑦.⓪.⓪.①:PORT/",
    "http://127。0。0。1:PORT/",
    "http://[::1]:PORT/",
    "http://[0:0:0:0:0:0:0:1]:PORT/",
    "http://[::0001]:PORT/",
    "http://[::ffff:127.0.0.1]:PORT/",
    "http://[::ffff:7f00:1]:PORT/",
    "http://[0:0:0:0:0:ffff:127.0.0.1]:PORT/",
    "http://[::127.0.0.1]:PORT/",
    "http://[64:ff9b::127.0.0.1]:PORT/",
    "http://[64:ff9b::7f00:1]:PORT/",
    "http://[2002:7f00:1::]:PORT/",
    "http://localhost:PORT/",
    "http://LOCALHOST:PORT/",
    "http://localhost.:PORT/",
    "http://foo.localhost:PORT/",
    "http://localhost.localdomain:PORT/",
    "http://ip6-localhost:PORT/",
    # no host
    "http://0:PORT/",
    "http://0.0.0.0:PORT/",
    "http://[::]:PORT/",
    "http://0x0:PORT/",
    "http:///:PORT",
    "http://:PORT/",
    # private, shared, link-local
    "http://10.0.0.1/",
    "http://10.255.255.255:PORT/",
    "http://172.16.0.1/",
    "http://172.31.255.254/",
    "http://192.168.0.1/",
    "http://192.168.1.1:8080/",
    "http://3232235777/",
    "http://0xc0a80101/",
    "http://[::ffff:192.168.1.1]/",
    "http://[fc00::1]/",
    "http://[fd12:3456:789a::1]/",
    "http://[fe80::1]/",
    "http://[fe80::1%25eth0]/",
    "http://[fec0::1]/",
    "http://100.64.0.1/",
    "http://198.18.0.1/",
    "http://192.0.2.1/",
    "http://[2001:db8::1]/",
    "http://[2001:0:53aa:64c::1]/",
    "http://224.0.0.1/",
    "http://239.255.255.250/",
    "http://[ff02::1]/",
    "http://255.255.255.255/",
    "http://240.0.0.1/",
    # metadata services
    "http://169.254.169.254/latest/meta-data/",
    "http://2852039166/latest/meta-data/",
    "http://0xa9fea9fe/",
    "http://0251.0376.0251.0376/",
    "http://[::ffff:169.254.169.254]/",
    "http://[::ffff:a9fe:a9fe]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[fd00:ec2::254]/",
    "http://metadata.google.internal/computeMetadata/v1/",
    "http://100.100.100.200/",
    "http://192.0.0.192/",
    "http://168.63.129.16/",
    # names that resolve to such places
    "http://127.0.0.1.nip.io:PORT/",
    "http://10-0-0-1.sslip.io/",
    "http://rebind.example:PORT/",
    "http://mixed.example:PORT/",
    "http://six.example:PORT/",
    "http://intranet/",
    "http://printer.lan/",
    "http://nas.local/",
    "http://db.home.arpa/",
    # names and passwords, other schemes, other services
    "http://user@127.0.0.1:PORT/",
    "http://public.example@127.0.0.1:PORT/",
    "http://public.example:80@127.0.0.1:PORT/",
    "http://127.0.0.1:PORT\\@public.example/",
    "http://public.example%2f@127.0.0.1:PORT/",
    "ftp://127.0.0.1:PORT/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:PORT/_x",
    "dict://127.0.0.1:PORT/",
    "data:text/html,x",
    "javascript:alert(1)",
    "//127.0.0.1:PORT/",
    "http://public.example:22/",
    "http://public.example:25/",
    "http://public.example:6379/",
    "https://public.example:11211/",
    "http://public.example:0/",
    "http://public.example:99999/",
]
NAMES = {
    "127.0.0.1.nip.io": ["127.0.0.1"],
    "10-0-0-1.sslip.io": ["10.0.0.1"],
    "mixed.example": ["127.0.0.1", "203.0.114.7"],
    "six.example": ["::ffff:127.0.0.1"],
}


class Names:
    """A resolver with names of its own. `rebind.example` is public whenever it is asked a first time, and then not."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> list[IP]:
        self.asked.append(host)
        assert host != "public.example", "its port was not refused"
        if host == "rebind.example":
            return [ipaddress.ip_address("127.0.0.1")]
        if host in NAMES:
            return [ipaddress.ip_address(address) for address in NAMES[host]]
        # Numbers in every spelling, as the system reads them; names are not asked for.
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )
        return [ipaddress.ip_address(entry[4][0]) for entry in found]


@pytest.fixture(scope="module")
def listener() -> Iterator[socket.socket]:
    """Listens on every address of this machine, so that each connection that is made is seen."""
    with closing(socket.socket(socket.AF_INET6, socket.SOCK_STREAM)) as opened:
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        opened.bind(("::", 0))
        opened.listen(8)
        opened.setblocking(False)
        yield opened


def connections(listener: socket.socket) -> int:
    count = 0
    while True:
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1


async def fetch(guard: Guard, url: str, resolve: Resolve) -> httpx.Response:
    checked = guard.check_url(url)
    async with httpx.AsyncClient(transport=GuardedTransport(guard, resolve=resolve), trust_env=False) as client:
        return await client.get(checked, timeout=5)


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_no_spelling_leads_there(spelling: str, listener: socket.socket) -> None:
    url = spelling.replace("PORT", str(listener.getsockname()[1]))
    with pytest.raises((Blocked, InvalidAddress, httpx.ConnectError, httpx.InvalidURL)) as refused:
        await fetch(Guard(), url, Names())
    assert connections(listener) == 0, refused
    if isinstance(refused.value, httpx.ConnectError):
        assert "cannot be resolved" in str(refused.value), "it was connected to"


async def test_the_listener_would_see_a_connection(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    guard = Guard.allowing([f"127.0.0.1:{port}"])
    with pytest.raises(httpx.HTTPError):
        await fetch(guard, f"http://127.0.0.1:{port}/", Names())
    assert connections(listener) == 1


async def test_a_name_is_resolved_once_and_its_address_is_what_is_connected_to(listener: socket.socket) -> None:
    # A resolver that gives a public address when the URL is checked and a private one when it is connected to.
    names = Names()
    assert Guard().check_url("http://rebind.example/") == "http://rebind.example/"
    assert names.asked == []
    with pytest.raises(Blocked, match=r"rebind.example \(127.0.0.1\) is a loopback address"):
        await fetch(Guard(), f"http://rebind.example:{listener.getsockname()[1]}/", names)
    assert names.asked == ["rebind.example"]


@pytest.mark.parametrize(
    ("exemption", "url", "passes"),
    [
        ("127.0.0.1", "http://127.0.0.1:8888/", True),
        ("127.0.0.1:8888", "http://127.0.0.1:8888/", True),
        ("127.0.0.1:8888", "http://127.0.0.1:8889/", False),
        ("10.0.0.0/8", "http://10.2.3.4/", True),
        ("10.0.0.0/8", "http://11.0.0.1.example/", True),
        ("10.0.0.0/8", "http://192.168.0.1/", False),
        ("searx.lan", "http://searx.lan/", True),
        ("searx.lan", "http://other.lan/", False),
        ("searx.lan:8080", "http://searx.lan/", False),
        ("[::1]:80", "http://[::1]/", True),
        ("::1", "http://[::1]:8000/", True),
        ("localhost:6379", "http://localhost:6379/", True),
    ],
)
def test_an_operator_may_allow_a_host(exemption: str, url: str, passes: bool) -> None:
    guard = Guard.allowing([exemption])
    if passes:
        assert guard.check_url(url) == url
    else:
        with pytest.raises(Blocked):
            guard.check_url(url)


@pytest.mark.parametrize("text", ["", "http://host/", "a/b/c", "10.0.0.0/99", "user@host", "host:port"])
def test_what_is_no_host_cannot_be_allowed(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        Exemption.parse(text)


@pytest.mark.parametrize(
    "address", ["93.184.215.14", "8.8.8.8", "2606:4700::1111", "64:ff9b::8.8.8.8", "::ffff:8.8.8.8", "2002:808:808::1"]
)
def test_public_addresses_pass(address: str) -> None:
    Guard().check_address(ipaddress.ip_address(address), "host.example", 443)
