"""URLs with which somebody would like to reach the network of the server: all are refused."""


def words(text: str) -> list[str]:
    return text.split()


_HOSTS_4 = words("""
127.0.0.1 127.0.0.2 127.255.255.254 0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 172.16.0.1
172.31.255.254 192.168.0.1 192.168.255.255 169.254.169.254 169.254.170.2 169.254.0.1 100.64.0.1
100.100.100.200 100.127.255.255 192.0.0.1 192.0.0.192 192.0.2.1 192.88.99.1 198.18.0.1
198.19.255.255 198.51.100.7 203.0.113.9 224.0.0.1 224.0.0.251 233.252.0.1 239.255.255.250
240.0.0.1 255.255.255.254 255.255.255.255 168.63.129.16
""")

# Other ways to write 127.0.0.1, 169.254.169.254 and 10.0.0.1, which system resolvers accept.
_NUMBERS = words("""
2130706433 0x7f000001 0x7f.0x0.0x0.0x1 0177.0.0.1 017700000001 127.1 127.0.1 0x7f.1 127.0.0.01
127.0.0.1. 127.00.0.1 2852039166 0xa9fea9fe 0251.0376.0251.0376 169.254.43518 0xa9.0xfe.0xa9.0xfe
10.1 0xa000001 012.0.0.1 1.2.3.256 1.2.3.4.5 1.2.3 0 0x 0x0 00000177.1 127.0.0.0x1 3232235521
0xc0a80001 foo.1 foo.0x7f 999.1.1.1
""")

_HOSTS_6 = words("""
:: ::1 0:0:0:0:0:0:0:1 ::ffff:127.0.0.1 ::ffff:7f00:1 ::ffff:169.254.169.254 ::ffff:10.0.0.1
::ffff:8.8.8.8 ::ffff:0:8.8.8.8 ::127.0.0.1 ::7f00:1 ::8.8.8.8 ::a9fe:a9fe 64:ff9b::127.0.0.1
64:ff9b::a9fe:a9fe 64:ff9b::8.8.8.8 64:ff9b:1::1 64:ff9b:1:ffff::1 100::1 100:0:0:1::1 2001::1
2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:2::1 2001:10::1 2001:20::1 2001:30::1 2001:db8::1
2002:7f00:1:: 2002:7f00:1::1 2002:a00:1::1 2002:a9fe:a9fe::1 2002:808:808::1 3fff::1 3ffe::1
5f00::1 fc00::1 fd00:ec2::254 fd00::1 fdff::1 fe80::1 fe80::a9fe:a9fe fec0::1 ff02::1 ff05::1
ff0e::1 ff01::1 1::1 4000::1 8000::1 2a00:1450::5efe:127.0.0.1 2a00:1450::200:5efe:10.0.0.1
""")

_MALFORMED_6 = words("""
https://[::1 https://::1/ https://[]/ https://[::1]x/ https://[fe80::1%25eth0]/
https://[fe80::1%eth0]/ https://[2a00:1450::1%1]/ https://[v1.x]/ https://[127.0.0.1]/
https://[1::2::3]/ https://[::1]:/ https://[::ffff:127.1]/ https://[[::1]]/ https://[g::1]/
https://2a00:1450::1/
""")

_SCHEMES = words("""
file:///etc/passwd file://localhost/etc/passwd gopher://example.com:25/_HELO ftp://example.com/
dict://example.com:11211/ ldap://example.com/ tftp://example.com/ jar:https://example.com!/
data:text/plain,hi javascript:alert(1) unix:///var/run/docker.sock ws://example.com/
wss://example.com/ http+unix://%2Fvar%2Frun%2Fdocker.sock/ http://example.com/ HTTP://EXAMPLE.COM/
//example.com/ example.com example.com:443 https:example.com https:/example.com https: https://
https:///path :///x ://example.com http\u017f://example.com/ https//example.com
""")

_PARTS = [
    "https://user@example.com/",
    "https://user:secret@example.com/",
    "https://@example.com/",
    "https://example.com@127.0.0.1/",
    "https://127.0.0.1@example.com/",
    "https://example.com%40127.0.0.1/",
    "https://example.com/#fragment",
    "https://example.com#@127.0.0.1/",
    "https://example.com\\@127.0.0.1/",
    "https://127.0.0.1\\.example.com/",
    "https://example.com:0/",
    "https://example.com:/",
    "https://example.com:65536/",
    "https://example.com:00443/",
    "https://example.com:+443/",
    "https://example.com:-1/",
    "https://example.com:443:80/",
    "https://example.com:4 43/",
    "https://example.com:٤٤٣/",
    "https://exa mple.com/",
    " https://example.com/",
    "https://example.com/ ",
    "https://example.com/a b",
    "https://example.com/\r\nHost: internal",
    "https://example.com\r\n/",
    "https://example.com\t/",
    "https://example.com\n",
    "https://example.com\0/",
    "https://example.com/\0",
    "https://example.com/%0",
    "https://example.com/%zz",
    "https://example.com/ä",
    "https://exämple.com/",
    "https://example。com/",
    "https://①②⑦.⓪.⓪.①/",
    "https://127。0。0。1/",
    "https://loc\u00adalhost/",
    "https://example.com\u200b/",
    "https://\uff45xample.com/",
    "https://%31%32%37.0.0.1/",
    "https://example.com%00.evil.example/",
    "https://example.com%2f@127.0.0.1/",
    "https://-example.com/",
    "https://example-.com/",
    "https://example..com/",
    "https://.example.com/",
    "https://example.com./",
    "https://exa$mple.com/",
    "https://*.example.com/",
    "https://[example.com]/",
    "https://example.com|127.0.0.1/",
    "https://example.com,127.0.0.1/",
    "https://{host}/",
    "https://${HOST}/",
    "https://example.com/<script>",
    'https://example.com/"',
    "https://example.com/^",
    "https://example.com/`id`",
    "https://example.com/a\\..\\b",
    "https://" + "a" * 64 + ".com/",
    "https://" + "a." * 127 + "com/",
    "https://example.com/" + "a" * 2048,
    "\ufeffhttps://example.com/",
    "https://example.com/\ud800",
    "",
]

HOSTILE_URLS = [
    *(f"https://{each}/hook" for each in _HOSTS_4),
    *(f"https://{each}/" for each in _NUMBERS),
    *(f"https://[{each}]:8443/hook" for each in _HOSTS_6),
    *_MALFORMED_6,
    *_SCHEMES,
    *_PARTS,
]

# Names of a hostile zone, and where their owner lets them point.
HOSTILE_ADDRESSES = [*_HOSTS_4, *_HOSTS_6, "fe80::1%1", "127.1", "", "localhost", "1.2.3.4.5"]
