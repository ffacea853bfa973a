"""What a server may connect to: public addresses over https, and what its operator allows."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core import limits
from tenure.core.address import (
    AllowList,
    HttpUrl,
    is_public,
    read_address,
    read_authority,
    read_url,
)
from tenure.errors import InvalidArgument
from tests.core.hostile_url import HOSTILE_ADDRESSES, HOSTILE_URLS, words

NOTHING = AllowList()
PUBLIC = words("""
1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.1 100.63.255.255 100.128.0.1 126.255.255.255 128.0.0.1
168.63.129.15 169.253.255.255 172.15.255.255 172.32.0.1 192.0.1.1 192.167.255.255 223.255.255.255
2001:200::1 2001:4860:4860::8888 2003::1 2606:4700:4700::1111 2a00:1450:4001:81b::200e 3000::1
""")


def refused(text: object, allowed: AllowList = NOTHING) -> InvalidArgument:
    with pytest.raises(InvalidArgument) as caught:
        read_url(text, "url").check(allowed, "url")
    assert caught.value.fields == {"field": "url"}
    return caught.value


def test_there_are_at_least_two_hundred_hostile_urls_and_each_is_there_once() -> None:
    assert len(HOSTILE_URLS) >= 200
    assert len(set(HOSTILE_URLS)) == len(HOSTILE_URLS)


@pytest.mark.parametrize("url", HOSTILE_URLS)
def test_a_hostile_url_is_refused_and_not_repeated(url: str) -> None:
    message = refused(url).message
    assert message.startswith("url must ")
    assert len(url) < 8 or url not in message


@pytest.mark.parametrize("url", [None, 1, b"https://example.com/", ["https://example.com/"]])
def test_what_is_no_text_is_no_url(url: object) -> None:
    refused(url)


@pytest.mark.parametrize("text", PUBLIC)
def test_an_address_of_the_internet_is_public(text: str) -> None:
    assert is_public(ip_address(text))
    host = f"[{text}]" if ":" in text else text
    read_url(f"https://{host}/", "url").check(NOTHING, "url")


@pytest.mark.parametrize("text", HOSTILE_ADDRESSES)
def test_an_address_with_a_special_use_is_not_public(text: str) -> None:
    address = read_address(text)
    assert address is None or not is_public(address)


def test_an_address_with_a_zone_is_never_public() -> None:
    assert not is_public(IPv6Address("2a00:1450::1%1"))
    assert read_address("2a00:1450::1%1") is None


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6), st.ip_addresses(network="2000::/3")))
def test_what_is_public_here_is_at_least_global_in_python(
    address: IPv4Address | IPv6Address,
) -> None:
    if is_public(address):
        assert address.is_global
        assert not address.is_multicast
        assert not address.is_reserved


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://example.com", HttpUrl("https", "example.com", 443, "/")),
        ("HTTPS://Example.COM/Path", HttpUrl("https", "example.com", 443, "/Path")),
        ("https://a_b.example:8443/x?y=1", HttpUrl("https", "a_b.example", 8443, "/x?y=1")),
        ("https://example.com?y=%20", HttpUrl("https", "example.com", 443, "/?y=%20")),
        ("https://8.8.8.8/", HttpUrl("https", "8.8.8.8", 443, "/")),
        ("https://[2A00:1450:0::1]/", HttpUrl("https", "2a00:1450::1", 443, "/")),
        ("https://[2a00::1]:8443/", HttpUrl("https", "2a00::1", 8443, "/")),
        ("https://xn--exmple-cua.com/", HttpUrl("https", "xn--exmple-cua.com", 443, "/")),
        ("https://1and1.example/", HttpUrl("https", "1and1.example", 443, "/")),
        ("https://a/", HttpUrl("https", "a", 443, "/")),
    ],
)
def test_a_good_url_is_read_in_one_form(text: str, expected: HttpUrl) -> None:
    url = read_url(text, "url")
    assert url == expected
    assert url.check(NOTHING, "url") is url
    assert read_url(str(url), "url") == url


@pytest.mark.parametrize(
    ("text", "authority"),
    [
        ("https://example.com:443/", "example.com"),
        ("http://example.com:443/", "example.com:443"),
        ("http://example.com/", "example.com"),
        ("https://[2a00::1]/", "[2a00::1]"),
        ("https://[2a00::1]:80/", "[2a00::1]:80"),
    ],
)
def test_the_authority_has_the_port_unless_it_is_the_usual_one(text: str, authority: str) -> None:
    assert read_url(text, "url").authority == authority


def test_the_address_of_a_served_worker_is_read_with_and_without_its_port() -> None:
    assert read_authority("Worker-1.internal:50051", "address") == ("worker-1.internal", 50051)
    assert read_authority("10.0.0.1", "address") == ("10.0.0.1", None)
    assert read_authority("[fd00::1]:1", "address") == ("fd00::1", 1)


def test_an_allowed_network_opens_its_addresses_also_without_tls() -> None:
    allowed = AllowList.parse(["10.1.0.0/16", "127.0.0.1", "::1", "fd00::/8"], "endpoint-allow")
    for good in ("http://10.1.2.3/", "https://10.1.2.3/", "http://127.0.0.1:80/", "http://[::1]/"):
        read_url(good, "url").check(allowed, "url")
    # Only the look-up can show whether a name is inside of it.
    url = read_url("http://worker.internal/", "url").check(allowed, "url")
    rule = url.rule(allowed)
    assert rule(ip_address("10.1.0.7"))
    assert rule(ip_address("fd00::7"))
    for bad in ("10.2.0.1", "127.0.0.2", "8.8.8.8", "::ffff:10.1.0.7"):
        assert not rule(ip_address(bad))
    refused("http://10.2.0.1/", allowed)
    refused("http://8.8.8.8/", allowed)


def test_an_allowed_name_may_be_of_a_private_network_but_not_of_the_metadata_service() -> None:
    allowed = AllowList.parse(["Worker.internal"], "endpoint-allow")
    rule = read_url("http://worker.INTERNAL/", "url").check(allowed, "url").rule(allowed)
    for good in ("10.0.0.1", "127.0.0.1", "::1", "fd00::1", "8.8.8.8"):
        assert rule(ip_address(good))
    for bad in ("169.254.169.254", "fe80::1", "fd00:ec2::254", "0.0.0.0", "::", "224.0.0.1"):  # noqa: S104
        assert not rule(ip_address(bad))
    other = read_url("https://other.internal/", "url").check(allowed, "url")
    assert not other.rule(allowed)(ip_address("10.0.0.1"))
    assert other.rule(allowed)(ip_address("8.8.8.8"))
    refused("http://other.internal/", allowed)


def test_no_network_opens_what_is_no_host() -> None:
    allowed = AllowList.parse(["0.0.0.0/0", "::/0"], "endpoint-allow")
    for good in ("10.0.0.1", "127.0.0.1", "169.254.1.1", "::1"):
        assert allowed.allows("x", ip_address(good))
    for bad in ("0.0.0.0", "224.0.0.1", "255.255.255.255", "::", "ff02::1", "::ffff:10.0.0.1"):  # noqa: S104
        assert not allowed.allows("x", ip_address(bad))


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "10.0.0.1/8",
        "10.0.0.0/33",
        "a/b",
        "https://a",
        "a b",
        "*.a",
        "fe80::1%1",
        "a:80",
        "127.1",
    ],
)
def test_an_entry_that_is_neither_a_network_nor_a_name_is_refused(entry: str) -> None:
    with pytest.raises(InvalidArgument, match=r"^endpoint-allow must be a network"):
        AllowList.parse([entry], "endpoint-allow")


def test_a_list_that_is_too_long_is_refused() -> None:
    entries = [f"host-{number}" for number in range(limits.ALLOW_LIST_MAX + 1)]
    AllowList.parse(entries[1:], "endpoint-allow")
    with pytest.raises(InvalidArgument, match="at most 100 entries"):
        AllowList.parse(entries, "endpoint-allow")
