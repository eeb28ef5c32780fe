"""smuggling_cases.py: requests that two parsers may read differently; what kofn owes to each of them.

Used by test_smuggling.py (straight at a host) and test_proxies.py (through nginx and haproxy). Sources: RFC 9112 (message
syntax), RFC 9110 (fields), the fixes of llhttp behind 8.1.0 (`git log v8.1.0..v9.4.2`) and the CVEs of llhttp named below.

A case is text in latin-1 with marks that `render` fills in:
  @T  the path of an object of the case's own        @A  an Authorization line, without its end
  @S  the smuggled requests: a DELETE of /smuggle/victim and a PUT of a marker; stands at the end unless it is placed
  @L  how long @S is, in decimal; @X  the same in hex
"""
import dataclasses

BUCKET = "smuggle"


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    text: str
    statuses: tuple  # of the answer; None: the connection may end without one
    code: str = None
    closes: bool = True  # the connection ends behind this answer
    told: bool = True  # and the answer says so
    stored: str = None  # what @T holds afterwards; None: nothing
    either: bool = False  # may as well be refused with 400
    lags: bool = False  # if the chunks come later than the answer, it may be the last one and say so
    end: bool = False  # nothing follows: our side is shut down behind the text
    method: str = "GET"  # HEAD answers have no body
    absent: str = ""  # a header that must not be in the answer


CASES = []


def render(text, target, auth, marker, host="kofn.test"):
    smuggled = (f"DELETE /{BUCKET}/victim HTTP/1.1\r\nHost: {host}\r\n{auth}\r\n\r\n"
                f"PUT /{BUCKET}/{marker} HTTP/1.1\r\nHost: {host}\r\n{auth}\r\nContent-Length: 6\r\n\r\nmarker")
    for mark, value in (("@T", target), ("@A", auth), ("@S", smuggled), ("@L", str(len(smuggled))), ("@X", f"{len(smuggled):x}")):
        text = text.replace(mark, value)
    return text


def refuse(name, text, statuses=400, code=None, **more):
    """The connection ends; nothing of what follows is looked at."""
    text = text if "@S" in text or more.get("end") else text + "@S"
    statuses = statuses if isinstance(statuses, tuple) else (statuses,)
    CASES.append(Case(name, text, statuses, code or ("InvalidRequest" if statuses == (400,) else None), **more))


def take(name, text, status=200, **more):
    """One request with this meaning; the connection goes on behind it."""
    CASES.append(Case(name, text, (status,), closes=False, **more))


def head(*lines, first="PUT @T HTTP/1.1", host="Host: kofn.test", auth="@A"):
    return "\r\n".join([first, *([host] if host else []), *([auth] if auth else []), *lines]) + "\r\n\r\n"


def put(*lines, body="", **more):
    return head(*lines, **more) + body


def chunked(body, *lines, **more):
    return head("Transfer-Encoding: chunked", *lines, **more) + body


HELLO = "5\r\nhello\r\n0\r\n\r\n"
S_CHUNK = "@X\r\n@S\r\n0\r\n\r\n"
FIVE = "Content-Length: 5"
TE = "Transfer-Encoding: chunked"


def get(first, *lines, **more):
    return head(*lines, first=first, **more)


# ---- the start line: RFC 9112, 2.2 and 3 ----
G = "GET @T HTTP/1.1"
refuse("TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
refuse("a lone method", "GET\r\n\r\n")
refuse("a request line without a version", "GET @T\r\n")
refuse("the same with headers", get("GET @T"))
for bad in ("GET  @T HTTP/1.1", "GET @T  HTTP/1.1", "GET @T HTTP/1.1 ", "GET @T HTTP/1.1\t", " GET @T HTTP/1.1", "GET\t@T HTTP/1.1",
            "GET @T\tHTTP/1.1", "GET\x0b@T HTTP/1.1", "GET @T http/1.1", "GET @T HTTP/1.1x", "GET @T HTTP/1.10", "GET @T HTTP/01.1",
            "GET @T HTTP/1,1", "GET @T HTTP /1.1", "GET @T HTTP/1. 1", "GET @T HTTP/-1.1", "GET @T HTTP/1", "GET @T HTTPS/1.1",
            "GET @T ICE/1.0", "GET @T RTSP/1.0", "G(T @T HTTP/1.1", "GET: @T HTTP/1.1", "\x00GET @T HTTP/1.1", "GET\x00 @T HTTP/1.1",
            "GET @T HTTP/1.1 HTTP/1.1", "GET @T x HTTP/1.1"):
    refuse(f"start line {bad!r}", get(bad), 400, "InvalidURI" if bad == "GET @T\tHTTP/1.1" else "InvalidRequest")
for version in ("0.9", "1.2", "1.9", "2.0", "3.0"):
    refuse(f"HTTP/{version}", get(f"GET @T HTTP/{version}"), 505, "HttpVersionNotSupported")
refuse("the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505)
refuse("PRI as a method", get("PRI @T HTTP/1.1"), (400, 501))
refuse("start line ends with LF", f"{G}\nHost: kofn.test\r\n@A\r\n\r\n")
refuse("start line ends with CR", f"{G}\rHost: kofn.test\r\n@A\r\n\r\n")
refuse("start line ends with CR CR LF", f"{G}\r\r\nHost: kofn.test\r\n@A\r\n\r\n")
refuse("every line ends with LF", f"{G}\nHost: kofn.test\n@A\n\n")
refuse("a line feed in front", "\n" + get(G))
refuse("a carriage return in front", "\r" + get(G))
refuse("a blank in front, on its line", " \r\n" + get(G))
refuse("many empty lines in front", "\r\n" * 9 + get(G))
take("one empty line in front", "\r\n" + get("GET /smuggle/one HTTP/1.1"))
for byte in ("\x00", "\x01", "\t", "\x0b", "\x0c", "\x7f", "\x80", "\xff", "#", "\r"):
    refuse(f"target with {byte!r}", get(f"GET @T{byte}x HTTP/1.1"), 400, "InvalidURI")
refuse("authority form with GET", get("GET kofn.test:80 HTTP/1.1"), (400,), "InvalidURI", either=True)
refuse("CONNECT", get("CONNECT kofn.test:80 HTTP/1.1"), 405, "MethodNotAllowed")
refuse("CONNECT with a length", get("CONNECT kofn.test:80 HTTP/1.1", "Content-Length: @L") + "@S", 405)
refuse("a path without its slash", get("GET smuggle/one HTTP/1.1"), 400, "-")
refuse("asterisk form with GET", get("GET * HTTP/1.1"), 400, "InvalidURI", either=True)
refuse("asterisk form with OPTIONS", get("OPTIONS * HTTP/1.1"), 400, "InvalidURI")
refuse("another scheme", get("GET ftp://kofn.test@T HTTP/1.1"), 400, "InvalidURI", either=True)
refuse("a scheme without slashes", get("GET http:@T HTTP/1.1"), 400, "InvalidURI", either=True)
refuse("absolute form with user information", get("GET http://kofn.test@evil.test@T HTTP/1.1"), 400, "InvalidURI")
refuse("absolute form without a host", get("GET http://@T HTTP/1.1"), 400, "InvalidURI")
refuse("absolute form with a bad port", get("GET http://kofn.test:8x@T HTTP/1.1"), 400, "InvalidURI")
take("absolute form with another Host", get("GET http://other.test:80/smuggle/one HTTP/1.1"))
for method in ("get", "Get", "GETT", "GE", "FROB", "GET@".replace("@", "_"), "SOURCE-X"):
    refuse(f"method {method}", get(f"{method} @T HTTP/1.1"), 501, "NotImplemented")
refuse("method of 33 bytes", get("M" * 33 + " @T HTTP/1.1"), 501)
refuse("method without an end", "M" * 20000, (400, 414, 501))
refuse("target too long", get("GET /" + "y" * 9000 + " HTTP/1.1"), 414, "InvalidURI")
refuse("target without an end", "GET /" + "y" * 20000, 414, "InvalidURI")
take("TRACE", get("TRACE @T HTTP/1.1"), 405)
take("TRACE with a body", get("TRACE @T HTTP/1.1", "Content-Length: @L") + "@S", 405)
take("PATCH with a body", get("PATCH @T HTTP/1.1", "Content-Length: @L") + "@S", 405)

# ---- Host: RFC 9112, 3.2 ----
refuse("no Host", get(G, host=None))
refuse("two Hosts, equal", get(G, "Host: kofn.test"))
refuse("two Hosts", get(G, "hOST: other.test"))
refuse("two Hosts, one empty", get(G, "Host:"))
refuse("two Hosts with HTTP/1.0", get("GET @T HTTP/1.0", "Host: other.test"))
for bad in ("x/y", "a b", "a, b", "user@x", "x:8x", "x:1:2", "x:-1", "[::1", "::1", "[::1]x", "[]", "x]", "x%zz", "x%2", "x\\y", "x?y", "x#y",
            "<x>", "\xe4.test", "x\x00y", "x\ty", '"x"', "x^y", "{x}"):
    refuse(f"Host {bad!r}", get(G, host="Host: " + bad))
for good in ("", "[::1]:9000", "h_1.test", "10.0.0.1:80", "x:", "a%2db"):
    take(f"Host {good!r}", get("GET /smuggle/one HTTP/1.1", host="Host: " + good))

# ---- field lines: RFC 9112, 5; RFC 9110, 5.1 and 5.5 ----
for bad in ("x-a : b", "x-a\t: b", " x-a: b", "\tx-a: b", "x a: b", ": b", "no-colon", "x-a\x00: b", "x\x0b: b", "\xe4: b", "x(y): b", '"x": b',
            "x-a: b\x00c", "x-a: b\x01c", "x-a: b\x0bc", "x-a: b\x0cc", "x-a: b\x7fc", "x-a: b\rc", "x-a: b\nc", "x-a: b\n", "x-a: b\r",
            "x-a: b\r\r", "x-a: b\r\n folded", "x-a: b\r\n\tfolded", "x-a: b\r\n ", "x-a:\r\n b", "x-a: b\n x-c: d", "\x00"):
    refuse(f"field line {bad!r}", put("Content-Length: @L", bad) + "@S")
refuse("a folded line behind the start line", f"{G}\r\n x: y\r\nHost: kofn.test\r\n@A\r\n\r\n")
refuse("a folded Host", get(G, host="Host:\r\n kofn.test"))
refuse("head ends with LF", f"{G}\r\nHost: kofn.test\r\n@A\r\n\n")
refuse("head ends with LF LF", f"{G}\r\nHost: kofn.test\r\n@A\n\n")
refuse("head ends with CR CR LF", f"{G}\r\nHost: kofn.test\r\n@A\r\n\r\r\n")
refuse("head ends with CR and another byte (CVE-2025-23167)", f"{G}\r\nHost: kofn.test\r\n@A\r\n\rX@S")
refuse("an empty value and CR (CVE-2023-30589)", f"{G}\r\nHost: kofn.test\r\n@A\r\nx-a:\r{TE}\r\n\r\n1\r\nA\r\n0\r\n\r\n")
refuse("a value and CR (CVE-2022-35256)", f"{G}\r\nHost: kofn.test\r\n@A\r\nx-a: b\r{TE}\r\n\r\n{S_CHUNK}")
refuse("a blank before Content-Length (CVE-2024-27982)", put("x-a: b", " Content-Length: @L") + "@S")
refuse("a blank before the first field (CVE-2024-27982)", f"PUT @T HTTP/1.1\r\n Content-Length: @L\r\nHost: kofn.test\r\n@A\r\n\r\n@S")
refuse("a blank behind Content-Length (CVE-2021-22959)", put("Content-Length : @L") + "@S")
refuse("101 fields", get(G, *[f"x-{i}: v" for i in range(99)]), 431)
refuse("5000 fields", get(G, *[f"x-{i}: v" for i in range(5000)]), 431)
refuse("fields of 33 KB", get(G, "x: " + "v" * 33000), 431, "RequestHeaderSectionTooLarge")
refuse("a field without an end", "GET / HTTP/1.1\r\nx: " + "v" * 40000, 431)
refuse("a refused HEAD brings no body", get("HEAD @T HTTP/1.1", "x-a : b"), 400, "-", method="HEAD")
refuse("a HEAD with a bad target brings no body", get("HEAD @T\x7f HTTP/1.1"), 400, "-", method="HEAD")
take("a value of 8-bit text", get("GET /smuggle/one HTTP/1.1", "x-a: caf\xe9 \xff"))
take("a name with an underscore is another name", put("Content-Length: @L", "Transfer_Encoding: chunked", "Content_Length: 0") + "@S",
     stored="@S")

# ---- Content-Length: RFC 9110, 8.6; RFC 9112, 6.3 ----
for lines in ((FIVE, FIVE), (FIVE, "Content-Length: 6"), ("Content-Length: 0", "Content-Length: @L"), (FIVE, "CONTENT-LENGTH: 0"),
              ("Content-Length: @L", "Content-Length:")):
    refuse(f"lengths {lines}", put(*lines) + ("hello" if lines[0] == FIVE else "@S"))
for bad in ("5, 5", "5,5", "5,6", "+5", "-5", "-0", "5x", "x5", "0x5", "5 5", "", " ", "5.0", "5e0", "5;", "5,", ",5", '"5"', "'5'", "NaN",
            "\xd9\xa5", "5\x0b", "\x0b5", "5\x00", "5\xa0", "1_0", "9223372036854775808", "18446744073709551621", "99999999999999999999",
            "5" * 400):
    refuse(f"length {bad[:30]!r}", put(f"Content-Length: {bad}") + "hello")
take("a length with zeros in front", put("Content-Length: 000@L") + "@S", stored="@S")
take("a length with blanks around", put("Content-Length:   @L  ") + "@S", stored="@S")
take("a length with tabs around", put("Content-Length:\t@L\t") + "@S", stored="@S", either=True)
take("requests in a body", put("Content-Length: @L") + "@S", stored="@S")
take("requests in a body that nobody asked for: GET", get("GET /smuggle/one HTTP/1.1", "Content-Length: @L") + "@S")
take("requests in a body that nobody asked for: HEAD", get("HEAD /smuggle/one HTTP/1.1", "Content-Length: @L") + "@S", method="HEAD")
take("requests in a body that nobody asked for: DELETE", get("DELETE @T HTTP/1.1", "Content-Length: @L") + "@S", 204)
take("requests in a body that nobody asked for: POST", get("POST @T HTTP/1.1", "Content-Length: @L") + "@S", 405)

# ---- Transfer-Encoding: RFC 9112, 6.1 and 6.3 ----
for lines in ((FIVE, TE), (TE, FIVE), ("Content-Length: 0", TE), (TE, "Content-Length: 0"), ("content-length: 5", "TRANSFER-ENCODING: CHUNKED"),
              (TE, "Content-Length: @L"), (TE, TE), (TE, "Transfer-Encoding: identity"), ("Transfer-Encoding: identity", TE),
              ("Transfer-Encoding: xchunked", TE), (TE, "Transfer-Encoding:"), (TE, FIVE, FIVE)):
    refuse(f"framing {lines}", put(*lines) + "0\r\n\r\n@S")
refuse("Content-Length and an unknown coding", put(FIVE, "Transfer-Encoding: gzip") + "hello")
for bad in ("xchunked", "chunkedx", "chunkedchunked", "chunked, identity", "identity, chunked", "chunked, chunked", "identity", "gzip, chunked",
            "chunked, gzip", "chunked,", ",chunked", "chunked ,", "chunked;q=1", '"chunked"', "'chunked'", "chun ked", "chunked x", "chunked\x0b",
            "\x0bchunked", "chunked\x00", "chunked\x0c", "\x0cchunked", "chunked\xa0", "\xa0chunked", "chunked\r", "chunked\n", "", " ", "cow",
            "trailers", "\xefhunked", "chunk", "c hunked", "chunked\r\n , identity", "\r\n chunked", "chunked\r\n\t", "chunked\r\n identity"):
    name = {"\r\n chunked": " (CVE-2022-32215)", "chunked, identity": " (CVE-2022-32213)"}.get(bad, "")
    refuse(f"coding {bad!r}{name}", put(f"Transfer-Encoding: {bad}") + "0\r\n\r\n", (400, 501))
for bad in ("Transfer-Encoding : chunked", "Transfer-Encoding\t: chunked", " Transfer-Encoding: chunked", "Transfer-Encoding\x0b: chunked",
            "Transfer-Encoding\x00: chunked", "Transfer-Encoding\xa0: chunked", "Transfer-Encoding chunked", "Transfer-Encoding\r\n: chunked",
            "Transfer-Encoding\n: chunked", "x: y\nTransfer-Encoding: chunked", "x: y\rTransfer-Encoding: chunked", "\x00Transfer-Encoding: chunked"):
    name = " (CVE-2022-32214)" if "\n" in bad else ""
    refuse(f"field {bad!r} beside a length{name}", put("Content-Length: @L", bad) + "@S")
refuse("chunked with HTTP/1.0", chunked(S_CHUNK, first="PUT @T HTTP/1.0"))
refuse("chunked with HTTP/1.0 and keep-alive", chunked(S_CHUNK, "Connection: keep-alive", first="PUT @T HTTP/1.0"))
for good in ("chunked", "Chunked", "CHUNKED", "  chunked  "):
    take(f"coding {good!r}", put(f"Transfer-Encoding: {good}") + S_CHUNK, stored="@S")
for bad in ("chunked\t", "chunked \t ", "\tchunked\t"):
    refuse(f"coding {bad!r}", put(f"Transfer-Encoding: {bad}") + S_CHUNK)
take("coding '\\tchunked'", put("Transfer-Encoding:\tchunked") + S_CHUNK, stored="@S", either=True)
take("TE is no Transfer-Encoding", put("Content-Length: @L", "TE: chunked", "Connection: TE") + "@S", stored="@S")
take("X-Transfer-Encoding is none either", put("Content-Length: @L", "X-Transfer-Encoding: chunked") + "@S", stored="@S")
take("chunks that nobody asked for: GET", get("GET /smuggle/one HTTP/1.1", TE) + S_CHUNK, lags=True)
take("chunks that nobody asked for: HEAD", get("HEAD /smuggle/one HTTP/1.1", TE) + S_CHUNK, method="HEAD", lags=True)
take("chunks that nobody asked for: DELETE", get("DELETE @T HTTP/1.1", TE) + S_CHUNK, 204, lags=True)

# ---- chunks: RFC 9112, 7.1 ----
for bad in ("0x5", "+5", "-5", " 5", "5 ", "5\t", "\t5", "5\x0b", "", "g", "x", "5.", "5,5", "5_", "5\x00", "\x005", "00000000000000005", "ffffffffffffffff",
            "fffffffffffffffb", "10000000000000005", "8000000000000005", "11111111111111111", "5 ;a", "5;", "5;=b", "5;a=", "5; a", "5;a =b",
            "5;a= b", "5;a=b c", "5;;a", "5;a;", '5;a="b', '5;a="b"c', '5;a="b\\', "5;a=b\"c\"", "5;a\x00", "5;\x01", '5;a="\x00"', '5;a="\x7f"',
            "5;a=\x0b", "5;\xe4", "5;a(b)", "5\r", "5;a\rb", "5;a\nb", "5\n", '5;a="\r', '5;a="\n"', '5;a="x\\\r', "5\r\r"):
    refuse(f"chunk size {bad!r}", chunked(bad + "\r\nhello\r\n0\r\n\r\n"))
refuse("chunk size ends with LF", chunked("5\nhello\r\n0\r\n\r\n"))
refuse("chunk size ends with CR", chunked("5\rhello\r\n0\r\n\r\n"))
refuse("extension ends with LF (TERM.EXT)", chunked("5;a\nhello\r\n0\r\n\r\n"))
refuse("extension with LF and a size behind it (EXT.TERM)", chunked("2;\nxx\r\n@X\r\n0\r\n\r\n@S\r\n0\r\n\r\n"))
refuse("quoted extension with CR LF", chunked('5;a="\r\nhello\r\n0\r\n\r\n"\r\n'))
refuse("extension of 100 KB", chunked("5;" + "e" * 100000 + "\r\nhello\r\n0\r\n\r\n"))
for bad in ("X\r\n", "\n", "\r", "\r\r\n", "", "\r\n\r\n", "\n\r", " \r\n", "\r \n", "\x00\r\n"):
    refuse(f"data ends with {bad!r}", chunked(f"5\r\nhello{bad}0\r\n\r\n"))
refuse("no CR LF behind the data, then a size (CVE-2021-22960)", chunked("5\r\nhello@X\r\n@S\r\n0\r\n\r\n"))
for bad in ("0\n\r\n", "0\r\n\n", "0\n\n", "0\r\n\rX", "0\r\r\n\r\n", "0 \r\n\r\n", "0\r\n \r\n", "-0\r\n\r\n", "0x\r\n\r\n", "0;\r\n\r\n", "0;a\n\r\n"):
    refuse(f"last chunk {bad!r}", chunked("5\r\nhello\r\n" + bad))
for bad in ("bad trailer", "x : y", " x: y", ": y", "x: y\n", "x: y\rz", "x: y\x00", "x: y\r\n folded", "x\x00: y", "x: y\x01", "\xe4: y"):
    refuse(f"trailer {bad!r}", chunked(f"5\r\nhello\r\n0\r\n{bad}\r\n\r\n"))
refuse("trailer of 100 KB", chunked("5\r\nhello\r\n0\r\nt: " + "v" * 100000 + "\r\n\r\n"))
for trailer in ("Content-Length: 0", "content-length: @L", "Transfer-Encoding: chunked", "TRANSFER-ENCODING: identity", "Host: other.test"):
    refuse(f"trailer {trailer!r}", chunked(f"5\r\nhello\r\n0\r\nx: y\r\n{trailer}\r\n\r\n"))
for trailer in ("Authorization: Basic eDp5", "x-amz-meta-a: b", "Connection: close", "Expect: 100-continue", "Content-Lengths: 0"):
    take(f"trailer {trailer!r} is dropped", chunked(f"@X\r\n@S\r\n0\r\n{trailer}\r\n\r\n"), stored="@S")
for extension in (";a", ";a=b", ';a="b c"', ';a="b;\\"\\\\\t\xe4"', ";a=b;c;d=e", ';a=""'):
    take(f"extension {extension!r}", chunked(f"@X{extension}\r\n@S\r\n0{extension}\r\n\r\n"), stored="@S")
take("a size with zeros in front", chunked("00000@X\r\n@S\r\n000\r\n\r\n"), stored="@S")
take("sizes in upper case", chunked("A\r\n0123456789\r\n0\r\n\r\n"), stored="0123456789")
take("a body of no chunk", chunked("0\r\n\r\n"), stored="")

# ---- Expect, Upgrade, Connection: RFC 9110, 10.1.1, 7.8 and 7.6.1 ----
for bad in ("the-best", "100-continue, x", "100-continue;x", "100-continued", "", "200-ok", '"100-continue"'):
    refuse(f"expectation {bad!r}", put(FIVE, f"Expect: {bad}") + "hello", 417, "ExpectationFailed")
refuse("two expectations", put(FIVE, "Expect: 100-continue", "Expect: x") + "hello", 417)
refuse("a body that is not wanted, and a request in its place", head("Expect: 100-continue", "Content-Length: @L", first="PUT /no-such-bucket/x HTTP/1.1"),
       404, "NoSuchBucket")
refuse("the same in chunks", head("Expect: 100-continue", TE, first="PUT /no-such-bucket/x HTTP/1.1"), 404, "NoSuchBucket")
refuse("an expectation of HTTP/1.0 is ignored", put("Expect: x", "Content-Length: @L", first="PUT @T HTTP/1.0") + "@S", 200, stored="@S")
take("an expectation without a body", get("GET /smuggle/one HTTP/1.1", "Expect: 100-continue"))
for upgrade in (("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA"),
                ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"), ("Connection: upgrade", "Upgrade: TLS/1.0")):
    take(f"{upgrade[1]} is ignored", get("GET /smuggle/one HTTP/1.1", *upgrade))
    take(f"{upgrade[1]} with a body is ignored", put(*upgrade, "Content-Length: @L") + "@S", stored="@S")
for close in ("close", "Close", "close\t", "close ", "keep-alive, close", "close, keep-alive", "x, ,close", "close,", "\tclose", "close, TE"):
    refuse(f"requests behind Connection: {close!r}", get("GET /smuggle/one HTTP/1.1", f"Connection: {close}"), 200)
refuse("two Connection fields", get("GET /smuggle/one HTTP/1.1", "Connection: keep-alive", "Connection: close"), 200)
refuse("requests behind HTTP/1.0", get("GET /smuggle/one HTTP/1.0"), 200)
take("Connection names Content-Length", put("Connection: Content-Length", "Content-Length: @L") + "@S", stored="@S")
take("Connection names Transfer-Encoding", put("Connection: Transfer-Encoding", TE) + S_CHUNK, stored="@S")

# ---- an early answer does not lose count of the body behind it ----
for name, words, status in (("no credentials", {"auth": None}, 403), ("wrong credentials", {"auth": "Authorization: Basic eDp5"}, 403),
                            ("no bucket", {"first": "PUT /no-such-bucket/x HTTP/1.1"}, 404), ("a bad key", {"first": "PUT /smuggle/%zz HTTP/1.1"}, 400),
                            ("a sub-resource", {"first": "PUT @T?acl HTTP/1.1"}, 501)):
    take(f"{name}: the body is skipped", put("Content-Length: @L", **words) + "@S", status)
    take(f"{name}: the chunks are skipped", chunked(S_CHUNK, **words), status, lags=True)
    refuse(f"{name}: broken chunks behind the answer", chunked("5\r\nhello@X\r\n@S\r\n0\r\n\r\n", **words), status, "-", told=False)
take("a precondition: the body is skipped", put("Content-Length: @L", "If-Match: \"00\"") + "@S", 404)
refuse("a body too long to skip", put("Content-Length: 1000000", auth=None), 403)
take("a PUT without a length", put(), 411)

# ---- a message that ends too soon is no message: RFC 9112, 8 ----
refuse("a body cut short", put("Content-Length: 9@L") + "@S", (400, None), "-", end=True)
refuse("a chunk cut short", chunked("f@X\r\n@S"), (400, None), "-", end=True)
refuse("the last chunk is missing", chunked("@X\r\n@S\r\n"), (400, None), "-", end=True)
refuse("the end of the trailers is missing", chunked("@X\r\n@S\r\n0\r\n"), (400, None), "-", end=True)
refuse("a head cut short", "PUT @T HTTP/1.1\r\nHost: kofn.test\r\n@A\r\nContent-Length: 0\r\n", (400, None), "-", end=True)

# ---- an answer cannot be split by what a request says ----
take("CR LF in a key", get("GET /smuggle/%0d%0ax-injected:%20y HTTP/1.1"), 404, absent="x-injected")
take("CR LF in an overridden header", get("GET /smuggle/one?response-content-disposition=a%0d%0ax-injected:%20y HTTP/1.1"), None, absent="x-injected")
take("CR LF in a bucket", get("GET /smug%0d%0agle/x HTTP/1.1"), None, absent="x-injected")
