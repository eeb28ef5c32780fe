#!/usr/bin/env python3
"""seeds.py: the hand-made seeds of the fuzz targets, good and bad ones, and families of inputs that grow.

  seeds.py DIR            writes DIR/<target>/s-<name> for every seed
  seeds.py --grow DIR     writes DIR/<target>/<family>/<size>: the same shape at 1x, 2x, 4x, 8x (fuzz.py times them)
"""
import base64
import json
import os
import struct
import sys

# ---- CRC32C (Castagnoli), as on disk and wire ----
_TABLE = []
for _i in range(256):
    _c = _i
    for _ in range(8):
        _c = _c >> 1 ^ (0x82F63B78 if _c & 1 else 0)
    _TABLE.append(_c)


def crc32c(data, crc=0):
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def str16(b):
    return struct.pack(">H", len(b)) + b


def str32(b):
    return struct.pack(">I", len(b)) + b


# ---- HTTP ----

def head(line, *headers):
    return ("\r\n".join((line,) + headers) + "\r\n\r\n").encode("latin-1")


H = "Host: h"
HEADS = {
    "get": head("GET / HTTP/1.1", H),
    "get10": head("GET /a/b?x=1&y HTTP/1.0"),
    "get10-keep": head("GET / HTTP/1.0", "Connection: Keep-Alive"),
    "absolute": head("GET http://h:1/a/b?c HTTP/1.1", H),
    "absolute-bare": head("GET HTTPS://h HTTP/1.1", H),
    "put-length": head("PUT /b/k%20y//?a=1&b=?2 HTTP/1.1", "Host: h:9000", "X-Amz-Meta-A: \t caf\xc3\xa9  x \t",
                       "X-Amz-Meta-A:", "Content-Length: 007", "EXPECT: 100-Continue", "Connection: x, Close"),
    "put-chunked": head("PUT /b/k HTTP/1.1", H, "Transfer-Encoding: Chunked", "Expect: 100-continue"),
    "options": head("OPTIONS * HTTP/1.1", H),
    "connect": head("CONNECT h:80 HTTP/1.1", H),
    "patch": head("PATCH / HTTP/1.1", H, "Upgrade: h2c", "Connection: Upgrade, keep-alive"),
    "head-delete": head("HEAD /x HTTP/1.1", H) + head("DELETE /x HTTP/1.1", H),
    "post": head("POST /b?delete HTTP/1.1", H, "Content-Length: 0"),
    "bad-two-lengths": head("PUT / HTTP/1.1", H, "Content-Length: 1", "Content-Length: 1"),
    "bad-cl-te": head("PUT / HTTP/1.1", H, "Content-Length: 1", "Transfer-Encoding: chunked"),
    "bad-te-te": head("PUT / HTTP/1.1", H, "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
    "bad-te-list": head("PUT / HTTP/1.1", H, "Transfer-Encoding: gzip, chunked"),
    "bad-te-tab": head("PUT / HTTP/1.1", H, "Transfer-Encoding: chunked\t "),
    "bad-te-10": head("PUT / HTTP/1.0", H, "Transfer-Encoding: chunked"),
    "bad-length": head("PUT / HTTP/1.1", H, "Content-Length: 18446744073709551617"),
    "bad-length-sign": head("PUT / HTTP/1.1", H, "Content-Length: +1"),
    "bad-length-empty": head("PUT / HTTP/1.1", H, "Content-Length:"),
    "bad-expect": head("PUT / HTTP/1.1", H, "Expect: 200-ok", "Content-Length: 1"),
    "bad-no-host": head("GET / HTTP/1.1"),
    "bad-two-hosts": head("GET / HTTP/1.1", H, H),
    "bad-host": head("GET / HTTP/1.1", "Host: a/b"),
    "bad-fold": head("GET / HTTP/1.1", H, "A: b", " folded"),
    "bad-lf": b"GET / HTTP/1.1\nHost: h\r\n\r\n",
    "bad-lf-header": b"GET / HTTP/1.1\r\nHost: h\n\r\n",
    "bad-cr": b"GET / HTTP/1.1\r\nHost: h\r\nA: b\rC: d\r\n\r\n",
    "bad-space-colon": head("GET / HTTP/1.1", H, "A : b"),
    "bad-nul": head("GET / HTTP/1.1", H, "A: \0"),
    "bad-name": head("GET / HTTP/1.1", H, "A(b): c"),
    "bad-target": head("GET x HTTP/1.1", H),
    "bad-target-byte": head("GET /\x80 HTTP/1.1", H),
    "bad-version": head("GET / HTTP/2.0", H),
    "bad-version-text": head("GET / http/1.1", H),
    "bad-method": head("FROB / HTTP/1.1", H),
    "bad-method-long": head("F" * 33 + " / HTTP/1.1", H),
    "bad-tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "bad-many": head("GET / HTTP/1.1", H, *["A:"] * 100),
    "most-headers": head("GET / HTTP/1.1", H, *["A:"] * 99),
    "bad-long-target": head("GET /" + "a" * 8192 + " HTTP/1.1", H),
    "bad-long-line": b"GET /" + b"a" * 8300,
    "bad-long-head": head("GET / HTTP/1.1", H, "L: " + "x" * 32768),
    "long-head": head("GET / HTTP/1.1", H, "L: " + "x" * 32000),
}

BODIES = {
    "empty": b"0\r\n\r\n",
    "one": b"5\r\nhello\r\n0\r\n\r\n",
    "two": b"3\r\nabc\r\n000A;name=value;x=\"y\"\r\n0123456789\r\n0\r\n\r\n",
    "trailers": b"1\r\nx\r\n0\r\nA: b\r\nC:\t d \r\n\r\nGET",
    "big": b"400\r\n" + b"z" * 1024 + b"\r\n0\r\n\r\n",
    "tiny-chunks": b"1\r\na\r\n" * 60 + b"0\r\n\r\n",
    "bad-size": b"g\r\n", "bad-size-empty": b"\r\n", "bad-size-sign": b"-1\r\n", "bad-size-0x": b"0x1\r\na\r\n",
    "bad-size-space": b"1 \r\na\r\n0\r\n\r\n", "bad-size-long": b"00000000000000001\r\na\r\n0\r\n\r\n",
    "bad-size-huge": b"4000000000000001\r\n", "bad-lf": b"1\na\r\n0\r\n\r\n", "bad-crcr": b"1\r\r\na",
    "bad-data-end": b"1\r\nab\r\n0\r\n\r\n", "bad-data-lf": b"1\r\na\n0\r\n\r\n", "bad-ext": b"1;\x01\r\na\r\n0\r\n\r\n",
    "bad-ext-long": b"1;" + b"e" * 16385 + b"\r\na\r\n0\r\n\r\n", "ext-long": b"1;" + b"e" * 16384 + b"\r\na\r\n0\r\n\r\n",
    "bad-trailer": b"0\r\n: b\r\n\r\n", "bad-trailer-name": b"0\r\nA b: c\r\n\r\n", "bad-trailer-value": b"0\r\nA: \x7f\r\n\r\n",
    "bad-trailer-long": b"0\r\nA:" + b"t" * 8190 + b"\r\n\r\n", "trailer-long": b"0\r\nA:" + b"t" * 8188 + b"\r\n\r\n",
    "ext-quoted": b'1;a;b="c\\"d;e";f=g\r\na\r\n0\r\n\r\n', "bad-ext-name": b"1;=x\r\na\r\n", "bad-ext-value": b"1;a=\r\na\r\n", "bad-ext-quoted": b'1;a="b\r\na\r\n',
    "bad-ext-behind": b'1;a="b"c\r\na\r\n', "bad-ext-blank": b"1;a =b\r\na\r\n", "bad-trailer-length": b"0\r\nContent-Length: 1\r\n\r\n", "bad-trailer-te": b"0\r\ntransfer-encoding: chunked\r\n\r\n",
    "trailer-like": b"0\r\nContent-Lengths: 1\r\nTransfer-Encoding2: x\r\nHos: t\r\n\r\n", "cut": b"5\r\nhel", "cut-end": b"0\r\n\r",
}


def with_body(line, body, *headers):
    return head(line, H, *headers) + body


def conn_seeds():
    out = {"get-get": HEADS["get"] * 3, "blank": b"\r\n\r\n" + HEADS["get"], "bad-blank": b"\r\n" * 5 + HEADS["get"],
           "bad-cr": b"\r\rGET", "head10": HEADS["get10"], "keep10": HEADS["get10-keep"] * 2}
    for i in range(8):
        line = "PUT /%d HTTP/1.1" % i
        out["length-%d" % i] = with_body(line, b"hello", "Content-Length: 5") + HEADS["get"]
        out["chunked-%d" % i] = with_body(line, BODIES["two"], "Transfer-Encoding: chunked") + HEADS["get"]
    for name in ("bad-size", "bad-lf", "cut", "trailers", "big"):
        out["body-" + name] = with_body("PUT /%s HTTP/1.1" % name, BODIES[name], "Transfer-Encoding: chunked") + HEADS["get"]
    out["expect"] = with_body("PUT /e HTTP/1.1", b"12345678", "Expect: 100-continue", "Content-Length: 8") * 2
    out["expect-1"] = with_body("PUT /1 HTTP/1.1", b"12345678", "Expect: 100-continue", "Content-Length: 8") + HEADS["get"]
    out["large"] = with_body("PUT /L HTTP/1.1", b"q" * 40000, "Content-Length: 40000") + HEADS["get"]
    out["large-chunk"] = with_body("PUT /L HTTP/1.1", b"9c40\r\n" + b"q" * 40000 + b"\r\n0\r\n\r\n",
                                   "Transfer-Encoding: chunked") + HEADS["get"]
    out["huge"] = with_body("PUT /1 HTTP/1.1", b"q" * 100, "Content-Length: 4000000000") + HEADS["get"]
    out["early"] = with_body("PUT /1 HTTP/1.1", b"q" * 3000, "Content-Length: 3000") + HEADS["get"]
    out["ahead"] = with_body("GET /0 HTTP/1.1", b"") + HEADS["get"] * 400
    out["head"] = head("HEAD /2 HTTP/1.1", H) + head("HEAD /3 HTTP/1.1", H)
    for name in ("bad-cl-te", "bad-two-lengths", "bad-tls", "bad-version", "connect", "bad-fold"):
        out[name] = HEADS["get"] + HEADS[name] + HEADS["get"]
    return out


def part(number, *lines):
    return bytes([number]) + b"".join(lines)


def values_seeds():
    text = {
        0: [b"\x20a%20b%2F", b"\x01%e2%82%ac%", b"\x00%zz", b"\xff%00+", b"\x01abc%4"],
        1: [b"Sun, 06 Nov 1994 08:49:37 GMT", b"Sunday, 06-Nov-94 08:49:37 GMT", b"Sun Nov  6 08:49:37 1994",
            b"Sat, 29 Feb 2020 23:59:60 GMT", b"Sun, 30 Feb 2020 00:00:00 GMT", b"Fri, 31 Dec 9999 23:59:59 GMT",
            b"Mon, 01 Jan 0000 00:00:00 GMT", b"\xff" * 8],
        2: [b"\0\0\0\x04\0" + r for r in (b"bytes=0-0", b"bytes=-5", b"bytes=5-", b" bytes= 1 - 99999999999999999999999",
                                          b"bytes=1-2,4-5", b"bytes=9-3", b"bytes=2000-", b"bytes=-0", b"items=0-1", b"bytes=x-")],
        3: [b"abc\n\"abc\"", b"abc\n\"x\", W/\"abc\"", b"abc\n*", b"abc\n&quot;abc&quot;", b"abc\n&#34;abc&#34;,", b"abc\n,,\t"],
        4: [b"\x60\0\0\0abc\n\0\"abc\"\n", b"\x60\0\0\0abc\n\1*\n", b"\x60\0\0\0abc\n\2Sun, 06 Nov 1994 08:49:37 GMT\n",
            b"\x2e\0\0\0abc\n\3Sun, 06 Nov 1994 08:49:37 GMT\n\0x\n"],
        5: [b"\xff00fFaB", b"\x02dXNlcjpwYXNz", b"\xffQQ==", b"\xffQUI=", b"\xffQR==", b"\xff====", b"\x04<&>\"\r\n\t\x01\xef\xbf\xbe\xf0\x9f\x98\x80\xed\xa0\x80"],
        6: [b"64KiB", b"18446744073709551615", b"99999999TiB", b"30s", b"500ms", b"7d", b"[::1]:9000", b":80", b"h:65536", b"a.b:1",
            b"[fe80::1%eth0]:1", b"/a//b/./c/", b"/../x", b"/", b"a-b_c.1", b"-x"],
    }
    return {"%d-%d" % (kind, i): part(kind, t) for kind, all_ in text.items() for i, t in enumerate(all_)}


# ---- S3 ----

AUTH = "Authorization: Basic " + base64.b64encode(b"anna:anna's secret").decode()
XML = b'<CreateBucketConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><LocationConstraint>%s</LocationConstraint></CreateBucketConfiguration>'


def s3(line, *headers, body=None, anonymous=True):
    headers = (H,) + headers + (("Content-Length: %d" % len(body),) if body is not None else ())
    return bytes([anonymous]) + head(line, *headers) + (body or b"")


def s3_seeds():
    out = {
        "service": s3("GET / HTTP/1.1"), "service-max": s3("GET /?max-buckets=1&prefix=p&continuation-token=x HTTP/1.1"),
        "service-max-bad": s3("GET /?max-buckets=0 HTTP/1.1"), "service-put": s3("PUT / HTTP/1.1"),
        "bucket-put": s3("PUT /photos HTTP/1.1"), "bucket-put-exists": s3("PUT /no-photos HTTP/1.1"),
        "bucket-put-pool": s3("PUT /photos HTTP/1.1", "x-kofn-pool: fast"), "bucket-put-pool-bad": s3("PUT /photos HTTP/1.1", "x-kofn-pool: system"),
        "bucket-head": s3("HEAD /photos HTTP/1.1"), "bucket-head-no": s3("HEAD /no-photos HTTP/1.1"), "bucket-bad": s3("GET /bad-photos HTTP/1.1"),
        "bucket-delete": s3("DELETE /photos/ HTTP/1.1"), "location": s3("GET /photos?location HTTP/1.1"),
        "acl": s3("GET /photos?acl HTTP/1.1"), "version": s3("GET /photos/a?versionId=null HTTP/1.1"), "uploads": s3("POST /photos/a?uploads HTTP/1.1"),
        "list": s3("GET /photos HTTP/1.1"), "list2": s3("GET /photos?list-type=2&prefix=a%2F&delimiter=%2f&max-keys=2&fetch-owner=true&start-after=a%00b HTTP/1.1"),
        "list-url": s3("GET /photos?encoding-type=url&marker=%ff+%2B&delimiter=/&max-keys=1&prefix=%e2%82%ac HTTP/1.1"),
        "list-token": s3("GET /photos?list-type=2&max-keys=1&continuation-token=@TOKEN@ HTTP/1.1"),
        "list-token-bad": s3("GET /photos?list-type=2&continuation-token=" + "ab" * 20 + " HTTP/1.1"),
        "list-zero": s3("GET /photos?list-type=2&max-keys=0 HTTP/1.1"), "list-type": s3("GET /photos?list-type=3 HTTP/1.1"),
        "list-max": s3("GET /photos?max-keys=2147483648 HTTP/1.1"), "list-enc": s3("GET /photos?encoding-type=x HTTP/1.1"),
        "list-long": s3("GET /photos?prefix=" + "a" * 1025 + " HTTP/1.1"), "params": s3("GET /photos?" + "&".join("a=%d" % i for i in range(33)) + " HTTP/1.1"),
        "params-long": s3("GET /photos?a=" + "b" * 4100 + " HTTP/1.1"), "params-bad": s3("GET /photos?a=%zz HTTP/1.1"), "params-odd": s3("GET /photos?&&=&a&=b&c= HTTP/1.1"),
        "put": s3("PUT /photos/a%20b/c HTTP/1.1", "Content-Type: text/plain", "x-amz-meta-a: 1", "x-amz-meta-a: 2", "x-amz-meta-b: 3",
                  "Content-MD5: XUFAKrxLKna5cZ2REBfFkg==", "x-amz-storage-class: STANDARD_IA", "Cache-Control: no-cache", body=b"hello"),
        "put-empty": s3("PUT /photos/a HTTP/1.1", body=b""), "put-none": s3("PUT /photos/a HTTP/1.1"),
        "put-chunked": s3("PUT /photos/a HTTP/1.1", "Transfer-Encoding: chunked") + BODIES["two"], "put-bad-chunk": s3("PUT /photos/a HTTP/1.1", "Transfer-Encoding: chunked") + BODIES["bad-size"],
        "put-if-none": s3("PUT /photos/a HTTP/1.1", "If-None-Match: *", "Expect: 100-continue", body=b"hello"),
        "put-if-match": s3("PUT /photos/a HTTP/1.1", 'If-Match: "abc"', body=b"hello"), "put-if-both": s3("PUT /photos/a HTTP/1.1", 'If-Match: "abc"', "If-None-Match: *", body=b"x"),
        "put-if-etag": s3("PUT /photos/a HTTP/1.1", 'If-None-Match: "abc"', body=b"x"), "put-no": s3("PUT /photos/no HTTP/1.1", body=b"hello"), "put-bad": s3("PUT /photos/bad HTTP/1.1", body=b"hello"),
        "put-md5-bad": s3("PUT /photos/a HTTP/1.1", "Content-MD5: x", body=b"hello"), "put-copy": s3("PUT /photos/a HTTP/1.1", "x-amz-copy-source: /b/c", body=b""),
        "put-class": s3("PUT /photos/a HTTP/1.1", "x-amz-storage-class: GLACIER", body=b"x"), "put-streaming": s3("PUT /photos/a HTTP/1.1", "x-amz-content-sha256: STREAMING-AWS4", body=b"x"),
        "put-huge": s3("PUT /photos/a HTTP/1.1", "Content-Length: 5368709121"), "put-meta-long": s3("PUT /photos/a HTTP/1.1", "x-amz-meta-a: " + "m" * 2048, body=b"x"),
        "put-meta-name": s3("PUT /photos/a HTTP/1.1", "x-amz-meta-" + "n" * 256 + ": x", body=b"x"), "put-short": s3("PUT /photos/a HTTP/1.1", "Content-Length: 10") + b"12345",
        "get": s3("GET /photos/a HTTP/1.1"), "get-head": s3("HEAD /photos/a HTTP/1.1"), "get-no": s3("GET /photos/no HTTP/1.1"), "get-empty": s3("GET /photos/empty HTTP/1.1"),
        "get-range": s3("GET /photos/a HTTP/1.1", "Range: bytes=1-10"), "get-range-bad": s3("GET /photos/a HTTP/1.1", "Range: bytes=1000-"),
        "get-if-range": s3("GET /photos/a HTTP/1.1", "Range: bytes=-5", 'If-Range: "0123456789abcdef"'), "get-if-range-date": s3("GET /photos/a HTTP/1.1", "Range: bytes=0-0", "If-Range: Sun, 06 Nov 1994 08:49:37 GMT"),
        "get-304": s3("GET /photos/a HTTP/1.1", 'If-None-Match: "0123456789abcdef"'), "get-412": s3("GET /photos/a HTTP/1.1", 'If-Match: "x"'),
        "get-since": s3("GET /photos/a HTTP/1.1", "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT"), "get-unsince": s3("GET /photos/a HTTP/1.1", "If-Unmodified-Since: Sun, 06 Nov 1993 08:49:37 GMT"),
        "delete": s3("DELETE /photos/a HTTP/1.1"), "delete-if": s3("DELETE /photos/a HTTP/1.1", 'If-Match: "abc"'), "delete-if-none": s3("DELETE /photos/a HTTP/1.1", "If-None-Match: *"), "delete-no": s3("DELETE /photos/bad HTTP/1.1"),
        "key-nul": s3("GET /photos/a%00b HTTP/1.1"), "key-utf8": s3("GET /photos/%c3%28 HTTP/1.1"), "key-long": s3("GET /photos/" + "k" * 1025 + " HTTP/1.1"), "key-esc": s3("GET /photos/%4 HTTP/1.1"),
        "bucket-name": s3("GET /Ab HTTP/1.1"), "bucket-ip": s3("GET /1.2.3.4 HTTP/1.1"), "bucket-long": s3("GET /" + "b" * 64 + " HTTP/1.1"), "bucket-xn": s3("GET /xn--a HTTP/1.1"),
        "bucket-esc": s3("GET /%zz HTTP/1.1"), "bucket-dots": s3("GET /a..b HTTP/1.1"), "bucket-alias": s3("GET /abc-s3alias HTTP/1.1"), "key-no-bucket": s3("GET //a HTTP/1.1"),
        "auth": s3("GET / HTTP/1.1", AUTH, anonymous=False), "auth-none": s3("GET / HTTP/1.1", anonymous=False), "auth-bad": s3("GET / HTTP/1.1", AUTH[:-8] + "AAAA", anonymous=False),
        "auth-key": s3("GET / HTTP/1.1", "authorization: BASIC  eDp5", anonymous=False), "auth-colon": s3("GET / HTTP/1.1", "Authorization: Basic eHh5", anonymous=False),
        "auth-sig": s3("GET / HTTP/1.1", "Authorization: AWS4-HMAC-SHA256 Credential=a", anonymous=False), "auth-two": s3("GET / HTTP/1.1", AUTH, AUTH, anonymous=False),
        "pipeline": s3("GET /photos/a HTTP/1.1") + s3("PUT /photos/a HTTP/1.1", body=b"hello")[1:] + s3("HEAD /photos/a HTTP/1.1")[1:] + s3("GET /photos HTTP/1.1")[1:],
        "refused": s3("GET / HTTP/1.1") + HEADS["bad-cl-te"],
    }
    for name, body in {"pool": XML % b"fast", "region": XML % b"eu-1", "us": XML % b"us-east-1", "unknown": XML % b"moon", "long": XML % (b"x" * 70), "cut": (XML % b"fast")[:-3],
                       "other": b"<Other/>", "doctype": b'<!DOCTYPE x [<!ENTITY a "b">]><CreateBucketConfiguration>&a;</CreateBucketConfiguration>',
                       "laughs": b'<!DOCTYPE x [<!ENTITY a "' + b"h" * 400 + b'"><!ENTITY b "' + b"&a;" * 100 + b'"><!ENTITY c "' + b"&b;" * 100 + b'">]><CreateBucketConfiguration><LocationConstraint>&c;</LocationConstraint></CreateBucketConfiguration>',
                       "prefix": b'<a:CreateBucketConfiguration xmlns:a="x"><a:LocationConstraint>fast</a:LocationConstraint></a:CreateBucketConfiguration>'}.items():
        out["xml-" + name] = s3("PUT /photos HTTP/1.1", body=body)
    out["xml-big"] = s3("PUT /photos HTTP/1.1", body=b" " * 65537)
    return out


# ---- frames, rows ----

def request(verb, key=b"k", row=b"", units=(), slot=0, state=0, profile=(1, 2, 1, 65536), flags=0, frm=b"", limit=10, timeout=1000):
    technique, k, m, unit = profile
    meta = struct.pack(">BBBBBHHII", verb, flags, 1, slot, state, 3, 7, 1, timeout) + b"B" * 16 + struct.pack(">QQ", 5, 6) + b"D" * 16
    meta += struct.pack(">BBBIQIIQ", technique, k, m, unit, 0, 0, limit, 5000)
    meta += str16(key) + str16(row) + str16(frm) + str16(b"pre") + str16(b"/") + bytes([len(units)])
    return meta + b"".join(struct.pack(">II", n, 77) for n in units)


def reply(err=0, units=(), body=b""):
    return struct.pack(">iBQQB", err, 0, 1, 2, len(units)) + b"".join(struct.pack(">II", n, 77) for n in units) + str32(body)


def drives(count):
    return struct.pack(">H", count) + b"".join(struct.pack(">HB16sQQ", i, i % 2, b"i" * 16, 3, 4) for i in range(count))


def hello(count=2, canonical=b"cluster c\n\0", extra=b"", low=1, high=1, host=b"n2", epoch=1, boot=1):
    return (struct.pack(">HH", low, high) + b"\1\2\3" + b"c" * 29 + str16(b"c") + str16(host) + bytes([boot]) + b"I" * 16 + struct.pack(">I", epoch)
            + b"m" * 32 + b"t" * 32 + struct.pack(">Q", 99) + drives(count) + str32(canonical) + extra)


def bye(err=-1, words=b"no\x01 more"):
    return struct.pack(">i", err) + str16(words)


def frame_seeds():
    out = {"header-%d" % t: bytes([0, 1]) + struct.pack(">IBBHIIII", 0, t, 0, 0, 9, 20 if t in (1, 3, 4, 5) else 0, 0, 5) + b"\0" * 4 for t in range(12)}
    out["header-flags"] = bytes([0, 1]) + struct.pack(">IBBHIIII", 0, 4, 1, 0, 9, 20, 0, 5) + b"\0" * 4
    out["header-big"] = bytes([0, 1]) + struct.pack(">IBBHIIII", 0, 4, 0, 0, 9, 1 << 30, 0, 5) + b"\0" * 4
    out["header-crc"] = bytes([0, 0]) + struct.pack(">IBBHIIII", 0x6b666e31, 4, 0, 0, 9, 20, 0, 5) + b"\0" * 4
    for verb in range(14):
        out["request-%d" % verb] = b"\1" + request(verb, state=1, units=(4096,) if verb in (2, 8) else (), row=b"r" if verb == 4 else b"")
    out["request-inline"] = b"\1" + request(4, row=b"r", units=(30000, 35536))
    bad = {"timeout": dict(timeout=0), "key": dict(key=b"k" * 1025), "nokey": dict(key=b""), "row": dict(verb=4), "limit": dict(limit=1001), "from": dict(frm=b"f" * 2049),
           "flags": dict(flags=8), "units": dict(units=(1,)), "unit": dict(verb=2, units=(1 << 21,)), "slot": dict(verb=2, slot=5, units=(1,)), "profile": dict(verb=2, profile=(9, 2, 1, 1), units=(1,)),
           "k": dict(verb=2, profile=(1, 0, 1, 1), units=(1,)), "unit0": dict(verb=2, profile=(1, 2, 1, 0), units=(1,)), "long-unit": dict(verb=2, profile=(1, 2, 1, 100), units=(200,)),
           "state": dict(verb=10), "inline": dict(verb=4, row=b"r", units=(65537,)), "nounits": dict(verb=8), "slot33": dict(slot=33), "many": dict(verb=2, units=(1,) * 17)}
    for name, change in bad.items():
        out["request-bad-" + name] = b"\1" + request(**{"verb": 1, **change})
    out["request-tail"] = b"\1" + request(1) + b"x"
    out.update({"reply": b"\2" + reply(body=b"body"), "reply-units": b"\2" + reply(units=(1, 2, 3)), "reply-err": b"\2" + reply(err=-5), "reply-unknown": b"\2" + reply(err=-99999),
                "reply-positive": b"\2" + reply(err=1), "reply-cut": b"\2" + reply(body=b"body")[:-1], "hello": b"\3" + hello(), "hello-0": b"\3" + hello(0, boot=0), "hello-new": b"\3" + hello(extra=b"new", high=9),
                "hello-nul": b"\3" + hello(canonical=b"a\0b\0"), "hello-none": b"\3" + hello(canonical=b""), "hello-host": b"\3" + hello(host=b""), "hello-long": b"\3" + hello(host=b"h" * 64),
                "hello-boot": b"\3" + hello(boot=2), "hello-versions": b"\3" + hello(low=3, high=2), "hello-later": b"\3" + hello(low=2, high=5), "hello-cut": b"\3" + hello()[:60],
                "hello-hostnul": b"\3" + hello(host=b"a\0"), "drives": b"\4" + drives(3), "drives-bad": b"\4" + struct.pack(">H", 300), "drives-flag": b"\4" + struct.pack(">HHB", 1, 300, 1) + b"x" * 32,
                "drives-cut": b"\4" + drives(3)[:-1], "bye": b"\5" + bye(), "bye-0": b"\5" + bye(0), "bye-long": b"\5" + bye(words=b"w" * 1024), "bye-tail": b"\5" + bye() + b"x"})
    for t in range(10):
        out["frame-%d" % t] = bytes([6, t, 0]) + b"meta" * (8 if t == 1 else 0)
    out["frame-bulk"] = bytes([6, 9, 1])
    return out


BAD_HEADER, BAD_META, RAW, RIGHT, LONG_META, LONG_BULK = 1, 2, 4, 8, 16, 32


def fr(kind, flags=0, stream=7, meta=b"", bulk=0, fill=b"", meta_len=None):
    return bytes([kind, flags, stream, len(meta) if meta_len is None else meta_len, bulk]) + meta + fill[:bulk & 15]


def stream_seeds():
    shake = fr(1, RIGHT) + fr(2, RIGHT)
    out = {}
    for role, request_type in ((0, 4), (1, 5)):
        out["shake-%d" % role] = bytes([role]) + shake + fr(request_type, meta=b"abc") + fr(3, meta=bye())
        out["open-%d" % role] = bytes([2 | role]) + b"".join(fr(request_type, LONG_BULK if i % 2 else 0, i, b"m%d" % i, i * 3) for i in range(14))
        out["long-%d" % role] = bytes([2 | role]) + fr(request_type, LONG_META | LONG_BULK, 3, b"x" * 90, 200) + fr(request_type, LONG_BULK, 4, b"y", 255)
        out["control-%d" % role] = bytes([2 | role]) + fr(7 + role, LONG_META, 1, b"z" * 200) + fr(9 + role) + fr(6) + fr(request_type, meta=b"q")
        out["crc-%d" % role] = bytes([2 | role]) + fr(request_type, BAD_META, 1, b"abc")
        out["head-%d" % role] = bytes([2 | role]) + fr(request_type, BAD_HEADER, 1, b"abc")
        out["raw-%d" % role] = bytes([2 | role]) + fr(4, RAW, 1, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n0123456789")
        out["early-%d" % role] = bytes([role]) + fr(request_type, meta=b"abc")
        out["proof-first-%d" % role] = bytes([role]) + fr(2, RIGHT)
        out["hello-twice-%d" % role] = bytes([role]) + fr(1, RIGHT) + fr(1, RIGHT)
        out["proof-wrong-%d" % role] = bytes([role]) + fr(1, RIGHT) + fr(2, 0, 1, b"p" * 32)
        out["proof-short-%d" % role] = bytes([role]) + fr(1, RIGHT) + fr(2, 0, 1, b"p")
        out["hello-bad-%d" % role] = bytes([role]) + fr(1, 0, 1, b"\0\1\0\1x")
        out["hello-later-%d" % role] = bytes([role]) + fr(1, 0, 1, b"\0\2\0\5x")
        out["bye-bad-%d" % role] = bytes([role]) + fr(3, 0, 1, b"x")
        for name, change in {"n9": dict(host=b"n9"), "n1": dict(host=b"n1"), "epoch": dict(epoch=13), "epoch-boot": dict(epoch=13, boot=0), "plain": {}}.items():
            out["hello-%s-%d" % (name, role)] = bytes([role]) + fr(1, 0, 1, hello(0, **change)) + fr(2, RIGHT)
        out["mirror-%d" % role] = bytes([role]) + fr(1, 0, 1, hello(0).replace(b"\1\2\3" + b"c" * 29, b"\t" * 32))
        out["drop-%d" % role] = bytes([2 | role]) + b"".join(fr(request_type, LONG_BULK, i, b"d%d" % i, 9, b"bulkbulk!") for i in range(20)) + fr(request_type, 0, 0x66, b"m", 5)
    return out


def row(kind=1, size=5, etag=b"abc", attrs=((b"content-type", b"x"),), data=b"D" * 16, profile=(1, 2, 1, 65536), digests=3):
    raw = b"".join(str16(a) + str16(b) for a, b in attrs)
    return (bytes([1, kind]) + struct.pack(">QQ", 5, 6) + b"O" * 16 + data + struct.pack(">BBBI", *profile) + struct.pack(">QQ", size, 99) + str16(etag) + b"G" * 16 * digests
            + struct.pack(">H", len(attrs)) + str16(raw) + b"crc!")


BUCKET = ((b"uuid", b"ab" * 16), (b"pool", b"default"), (b"state", b"active"), (b"created", b"123"), (b"owner", b"anna"))


def rows_seeds():
    f = 0x80
    out = {"row": bytes([f]) + b"k\n" + row(), "row-tomb": bytes([f]) + b"k\n" + row(2, 0, b"", (), b"\0" * 16, (0, 0, 0, 0), 0), "row-empty": bytes([f]) + b"k\n" + row(1, 0, data=b"\0" * 16, digests=0),
           "row-bucket": bytes([f]) + b"k\n" + row(1, 0, attrs=BUCKET, data=b"\0" * 16, digests=0), "row-revived": bytes([f]) + b"k\n" + row(1, 0, attrs=BUCKET + ((b"revived", b"1"),), data=b"\0" * 16, digests=0),
           "row-crc": bytes([0]) + b"k\n" + row(), "row-kind": bytes([f]) + b"k\n" + row(3), "row-etag": bytes([f]) + b"k\n" + row(etag=b"e" * 65), "row-data": bytes([f]) + b"k\n" + row(data=b"\0" * 16),
           "row-technique": bytes([f]) + b"k\n" + row(profile=(9, 2, 1, 65536)), "row-k0": bytes([f]) + b"k\n" + row(profile=(1, 0, 3, 65536)), "row-attr": bytes([f]) + b"k\n" + row(attrs=((b"", b"x"),)),
           "row-attr-long": bytes([f]) + b"k\n" + row(attrs=((b"n" * 257, b"x"),)), "row-many": bytes([f]) + b"k\n" + row(attrs=((b"a", b""),) * 129), "row-cut": bytes([f]) + b"k\n" + row()[:50],
           "row-short": bytes([f]) + b"k\nabc", "row-format": bytes([f]) + b"k\n\2" + row()[1:], "row-key": bytes([f]) + b"k" * 1025 + b"\n" + row(), "row-tombsize": bytes([f]) + b"k\n" + row(2)}
    for i, (name, value) in enumerate(BUCKET):
        out["row-bucket-bad-%d" % i] = bytes([f]) + b"k\n" + row(1, 0, attrs=tuple((n, b"?" * 70 if n == name else v) for n, v in BUCKET), data=b"\0" * 16, digests=0)
    old = row().replace(struct.pack(">QQ", 5, 6), struct.pack(">QQ", 4, 6))

    def read(*rows, flags=0, tail=b""):
        return bytes([flags]) + struct.pack(">QQQQ", 9, 9, 0, 0) + bytes([len(rows)]) + b"".join(bytes([c, s]) + str32(r) for c, s, r in rows) + tail
    out.update({"read": bytes([f | 1]) + b"k\n" + read((0, 1, row()), (1, 2, old)), "read-none": bytes([f | 1]) + b"k\n" + read(), "read-more": bytes([f | 1]) + b"k\n" + read((0, 1, row()), flags=1),
                "read-inline": bytes([f | 1]) + b"k\n" + read((1, 1, row()), flags=2, tail=str32(b"chunk") + b"\1" + b"crcc"), "read-inline-none": bytes([f | 1]) + b"k\n" + read(flags=2, tail=str32(b"chunk") + b"\0"),
                "read-order": bytes([f | 1]) + b"k\n" + read((0, 1, old), (0, 1, row())), "read-flags": bytes([f | 1]) + b"k\n" + read(flags=4), "read-chunk": bytes([f | 1]) + b"k\n" + read((0, 3, row())),
                "read-crc": bytes([1]) + b"k\n" + read((0, 1, row())), "read-tail": bytes([f | 1]) + b"k\n" + read() + b"x", "read-inline-units": bytes([f | 1]) + b"k\n" + read((1, 1, row()), flags=2, tail=str32(b"") + b"\x11" + b"c" * 68)})

    def entry(key, *vers, flags=0, kind=1, etag=b"e", chosen=1):
        return str16(key) + bytes([flags, len(vers)]) + b"".join(struct.pack(">QQBB16sQQ", v, 1, kind, chosen, b"o" * 16, 5, 6) + str16(etag) for v in vers)

    def page(*entries, end=1, count=None):
        return bytes([2, end]) + struct.pack(">I", len(entries) if count is None else count) + b"".join(entries)
    out.update({"list": page(entry(b"a", 3, 2), entry(b"b", 1, flags=7)), "list-0": page(), "list-order": page(entry(b"a", 2, 3)), "list-count": page(count=1001), "list-end": page(end=2), "list-tail": page(count=0) + b"x",
                "list-key": page(entry(b"")), "list-flags": page(entry(b"a", flags=8)), "list-kind": page(entry(b"a", 1, kind=3)), "list-etag": page(entry(b"a", 1, etag=b"e" * 65)), "list-rows": page(entry(b"a", *range(9, 0, -1))), "list-cut": page(entry(b"a", 1), count=2)})
    key = b"\1" + b"B" * 16 + str16(b"k") + struct.pack(">QQIBH", 1, 2, 3, 1, 5)
    out.update({"keys": b"\3" + key * 2 + b"\0" + str16(b"cursor"), "keys-0": b"\3\0" + str16(b""), "keys-tag": b"\3\2", "keys-cut": b"\3" + key[:-1], "keys-empty": b"\3" + key.replace(str16(b"k"), str16(b""))})
    return out


def placement_seeds():
    out = {"none": b"", "format": b"\0\0\0\x07", "epoch": b"\0\0\4\x07", "epoch0": b"\0\0\4\0", "cut": b"\0\x10\0\0" + b"x"}
    for i in range(5, 60):
        if i % 3 == 0:
            out["at-%d" % i] = struct.pack(">I", i << 8 | 0xff)
    for at in (40, 41, 42, 50, 1000, 6186, 6194, 6197, 6200, 6205, 6210):
        for value in (0, 1, 2, 3):
            if (at + value) % 3 == 0:
                out["slot-%d-%d" % (at, value)] = struct.pack(">I", at << 8 | value)
    return out


def key(fill=0, byte=b"k", tail=b""):
    return bytes([fill // 4, fill % 4]) + byte + bytes([len(tail)]) + tail


def keys_seeds():
    def put(k, a=1, b=1, flag=0):
        return bytes([flag]) + k + bytes([a, b])
    names = [key(tail=t) for t in (b"a", b"a\1", b"aa", b"b", b"\1", b"\xff")] + [key(n, tail=b"x") for n in (479, 480, 481, 959, 960, 961, 1023)]
    all_ = b"".join(put(k, a, 1, a & 1) for k in names for a in (3, 1, 2))
    looks = b"".join(bytes([op]) + k for k in names + [key(tail=b"a\0b"), key(1023, tail=b"xy"), key(480), key()] for op in (3, 4, 5))
    out = {"all": all_ + looks, "few": put(names[0]) + put(names[8], 2, 2, 1) + looks, "invalid": put(key(1023, tail=b"xx")) + put(key(tail=b"a\0")) + put(key()) + looks,
           "nul": put(key(tail=b"a")) + bytes([4]) + key(tail=b"a\0b") + bytes([5]) + key(tail=b"\0")}
    for i, (first, tail, value, repeat) in enumerate([(1, b"a\0", b"", 0), (1, b"\1", b"\0" * 8, 240), (1, b"\1", b"\0" * 7 + b"\1", 240), (0xc1, b"", b"short", 0), (1, b"a\0" + b"v" * 16, b"v", 0), (1, b"abc", b"", 0),
                                                        (2, b"a\0" + b"v" * 17, b"", 100), (1, b"", b"", 250)]):
        damage = bytes([2]) + b"k" + bytes([repeat, first, len(tail)]) + tail + bytes([len(value)]) + value
        out["damage-%d" % i] = put(names[0]) + put(names[9]) + damage + put(names[9], 2) + looks
    return out


def drive_seeds():
    def ident(epoch="1", name="n1/d1", extra="", fmt="kofn-drive 1"):
        return ("%s\ndrive %s\ncluster %s\ncluster-name c\nhost n1\nname %s\nepoch %s\nmap %s\ntable %s\n%s" % (fmt, "ab" * 16, "cd" * 16, name, epoch, "ef" * 32, "01" * 32, extra)).encode()
    f = 0x80
    out = {"id": bytes([f]) + ident(), "id-epoch": bytes([f]) + ident("1234567890"), "id-epoch-x": bytes([f]) + ident("1x"), "id-name": bytes([f]) + ident(name="n" * 1200), "id-extra": bytes([f]) + ident(extra="more\n"),
           "id-format": bytes([f]) + ident(fmt="kofn-drive 2"), "id-crc": bytes([0]) + ident() + b"crc 00000000\n", "id-short": bytes([0]) + b"x", "id-cut": bytes([f]) + ident()[:100], "id-nul": bytes([f]) + ident(name="a\0b")}
    for i, n in enumerate(["ab" * 16 + ".3.0123456789abcdef", "ab" * 16 + ".03.0123456789abcdef", "AB" * 16 + ".3.0123456789abcdef", "ab" * 16 + ".256.0123456789abcdef", "ab" * 16 + ". 3.123", "short", "zz" * 16 + ".1.1",
                            "ab" * 16 + ".3.0123456789abcdef.x", "ab" * 16 + ".-3.0123456789abcdef"]):
        out["name-%d" % i] = b"\1" + n.encode()

    def trailer(units, length, unit=4096, key=b"k"):
        t = b"kofntrlr" + struct.pack(">I", 1) + b"D" * 16 + bytes([2, 1, 2, 1]) + struct.pack(">IQQ", unit, units, length) + b"crcc" * min(units, 5000) + b"B" * 16 + str16(key) + b"G" * 16
        return t + struct.pack(">I", len(t) + 16) + b"crc!" + b"kofnends"
    def chunk(t, pad=0, length=0, flags=1):
        return bytes([f | 2, pad, flags]) + b"u" * length + t
    out.update({"chunk": chunk(trailer(1, 64), 1), "chunk-2": chunk(trailer(2, 4160), 65), "chunk-none": bytes([2, 0, 1]) + b"abc", "chunk-small": bytes([2, 0, 0]) + b"abc", "chunk-size": chunk(trailer(1, 65), 1),
                "chunk-units": chunk(trailer(0, 64), 1), "chunk-len": chunk(trailer(1, 5000), 1), "chunk-unit0": chunk(trailer(2, 0, 0)), "chunk-format": chunk(trailer(1, 64).replace(b"kofntrlr", b"kofntrlx"), 1),
                "chunk-large": chunk(trailer(1100, 64 * 64, 4), 64), "chunk-large-ok": chunk(trailer(1100, 4400, 4)[:], 68, 0), "chunk-whole": bytes([2, 0, 0]) + b"\0" * 4096 + trailer(1, 64)})
    out.update({"header": bytes([f | 3]) + b"\0" * 12 + b"\0\0\x10\0" + b"D" * 16 + b"\2\1\2\1\0\1\0\0", "header-crc": b"\3" + b"kofnchnk" + b"\0" * 60})
    return out


def state_seeds():
    drive = {"name": "n1/d1", "id": "ab" * 16, "boot_counter": 5, "boot_nonce": 77, "failed": "EIO"}
    base = {"format": 1, "cluster_name": "c", "host_id": "n1", "cluster_id": "ab" * 16, "init_id": "cd" * 16, "initialising": False, "canonical": "cluster c\n", "drives": [drive, {"name": "hex:ff00", "boot_counter": 0}]}
    out = {"whole": base, "fresh": {k: v for k, v in base.items() if k not in ("cluster_id", "init_id", "canonical")}}
    for k in list(base):
        out["without-" + k] = {a: b for a, b in base.items() if a != k}
        out["wrong-" + k] = {**base, k: [1]}
    for k, v in {"name": 5, "id": "zz", "boot_counter": -1, "boot_nonce": "x", "failed": "", "failed2": 5}.items():
        out["drive-" + k] = {**base, "drives": [{**drive, k.rstrip("2"): v}]}
    out["drive-twice"] = {**base, "drives": [drive, drive]}
    out["drive-many"] = {**base, "drives": [{"name": "d%d" % i, "boot_counter": 1} for i in range(257)]}
    out["long-name"] = {**base, "cluster_name": "c" * 64}
    out["hex"] = {**base, "cluster_name": "hex:c3", "host_id": "hex:hex", "canonical": "hex:00ff"}
    out["nul"] = {**base, "cluster_name": "a\0b"}
    out = {k: json.dumps(v).encode() for k, v in out.items()}
    out.update({"list": b"[]", "cut": out["whole"][:50], "twice": b'{"format":1,"format":1}', "deep": b"[" * 3000, "empty": b"", "big": b'{"format": 99999999999999999999}'})
    return out


YAML_ONE = """cluster: {name: c1, secret: 0123456789abcdef}
hosts:
  - {id: n1, address: "10.0.0.1:9001", zone: a, drives: [/d1, {name: two, path: /d2}]}
  - {id: n2, address: "10.0.0.2:9001", drives: [/d1, /d2]}
  - {id: n3, address: "h3:9001", drives: [/d1, /d2]}
pools:
  - {name: default, k: 2, m: 1}
  - {name: wide, k: 4, m: 2, technique: cauchy, stripe_unit: 128KiB, write_quorum: 5, drives: [n1//d1, n1/two, n2//d1, n2//d2, n3//d1, n3//d2]}
default_pool: wide
users:
  - {name: root, access_key: AKIA, secret_key: 12345678}
  - {access_key: BKIA, secret_key_file: /secret}
server: {host: n2, s3_listen: ":9000", log_level: warn, workers: 4, buffer_bytes: 64MiB, shutdown_grace: 10s}
drive: {reserve_bytes: auto}
"""
YAML_TWO = """# one host
hosts:
- id: solo
  address: 127.0.0.1:9001
  drives:
  - /d1
pools:
- name: p
  k: 1
  m: 0
server:
  s3_listen: "127.0.0.1:9000"
"""


def config_seeds():
    ff = b"\xff"
    one, two = YAML_ONE.encode(), YAML_TWO.encode()
    out = {"one": one + ff + ff + b"a secret of a file\n", "two": two, "env": two + ff + b"KOFN_SERVER_WORKERS=3\nKOFN_USERS_0_ACCESS_KEY=abc\nKOFN_USERS_0_SECRET_KEY=12345678\nKOFN_ROOT_ACCESS_KEY=rooot\nKOFN_ROOT_SECRET_KEY=rootrootroot\nOTHER=1",
           "env-bad": two + ff + b"KOFN_SERVER_WORKRES=3", "env-list": two + ff + b"KOFN_POOLS_0_STRIPE_UNIT=128KiB\nKOFN_HOSTS_5_ID=x", "env-number": two + ff + b"KOFN_POOLS_NAME=x",
           "env-root": two + ff + b"KOFN_ROOT_NAME=x", "env-file": two + ff + b"KOFN_CLUSTER_SECRET_FILE=/s" + ff + b"0123456789abcdef0", "env-top": two + ff + b"KOFN_DEFAULT_POOL=p",
           "env-list-field": two + ff + b"KOFN_POOLS_0_DRIVES=x", "secret-long": two + ff + b"KOFN_CLUSTER_SECRET_FILE=/s" + ff + b"s" * 300, "secret-none": two + ff + b"KOFN_CLUSTER_SECRET_FILE=/s",
           "empty": b"", "comment": b"# nothing\n", "two-documents": two + b"---\nx: y\n", "list": b"- a\n", "scalar": b"x", "not-yaml": b"a: [", "tab": b"a:\n\t- b", "alias": b"hosts: &a [*a]\n", "alias-map": b"&a cluster: *a\n",
           "nul": b'cluster: {name: "a\\0b"}', "twice": two + b"drive: {}\ndrive: {}\n", "field-twice": b"cluster: {name: a, name: b}", "unknown": b"cluser: {}", "unknown-field": b"server: {workes: 1}", "key-list": b"[a]: b", "key-list-2": b"cluster: {[a]: b}",
           "map-value": b"cluster: {name: {a: b}}", "list-value": b"hosts: {}", "drives-value": b"hosts: [{drives: x}]", "scalar-section": b"cluster: x", "items": b"users: [" + b"x," * 65 + b"]", "utf16": "cluster: {name: x}".encode("utf-16")}
    changes = {"k0": ("k: 2", "k: 0"), "km": ("k: 2, m: 1", "k: 20, m: 20"), "xor": ("m: 2, technique: cauchy", "m: 2, technique: xor"), "none": ("m: 2, technique: cauchy", "m: 2, technique: none"), "tech": ("cauchy", "magic"),
               "unit": ("128KiB", "100"), "unit64": ("128KiB", "5000"), "wq": ("write_quorum: 5", "write_quorum: 2"), "drive": ("n1/two", "n9/two"), "drive2": ("n1/two", "n1//d1"), "dup-id": ("id: n2", "id: n1"), "dup-address": ("10.0.0.2", "10.0.0.1"),
               "dup-pool": ("name: wide", "name: default"), "system": ("name: wide", "name: system"), "default": ("default_pool: wide", "default_pool: x"), "host": ("host: n2", "host: n7"), "no-host": ("host: n2, ", ""), "path": ("/d1", "d1"), "dots": ("/d2}", "/../d2}"),
               "unsafe": ("name: c1,", "name: c1, allow_unsafe_layout: true,"), "secret": (", secret: 0123456789abcdef", ""), "user": ("BKIA", "AKIA"), "level": ("warn", "loud"), "bool": ("name: c1,", "name: c1, allow_unsafe_layout: maybe,"),
               "port": ("9001", "99999"), "size": ("64MiB", "64MiBx"), "time": ("10s", "10"), "no-users": ("users:\n", "usersx:\n"), "dup-drive": ("drives: [/d1, /d2]", "drives: [/d1, /d1]"), "fourplus": ("k: 4, m: 2", "k: 6, m: 1"), "secret-ctl": ("12345678", "\"1234567\\x01\"")}
    for name, (a, b) in changes.items():
        out["change-" + name] = YAML_ONE.replace(a, b).encode() + ff + ff + b"a secret of a file\n"
    out["anonymous"] = two.replace(b"127.0.0.1:9000", b"0.0.0.0:9000")
    out["anonymous-ok"] = two.replace(b'"127.0.0.1:9000"', b'"0.0.0.0:9000"\n  anonymous: true')
    return out



SEEDS = {
    "http_head": lambda: HEADS,
    "http_chunked": lambda: BODIES,
    "http_values": values_seeds,
    "http_conn": conn_seeds,
    "s3_front": s3_seeds,
    "frame": frame_seeds,
    "stream": stream_seeds,
    "rows": rows_seeds,
    "placement": placement_seeds,
    "keys": keys_seeds,
    "drive_files": drive_seeds,
    "state_json": state_seeds,
    "config": config_seeds,
}


def growing():
    """target -> family -> a function of a size, whose inputs should cost as much time as they have bytes."""
    ff = b"\xff"
    yaml = YAML_TWO.encode()

    def body(xml):
        return s3("PUT /photos HTTP/1.1", body=xml)

    def get(query):
        return s3("GET /photos?" + query + " HTTP/1.1")
    open_, close = b"<CreateBucketConfiguration>", b"</CreateBucketConfiguration>"
    return {
        "http_head": (4000, {
            "no-line-end": lambda n: b"G" * n, "long-value": lambda n: head("GET / HTTP/1.1", H, "A: " + "x" * n), "blanks": lambda n: head("GET / HTTP/1.1", H, "A:" + " " * n),
            "connection": lambda n: head("GET / HTTP/1.1", H, "Connection: " + "," * n), "one-header-many-lines": lambda n: b"GET / HTTP/1.1\r\n" + b"A:\r\n" * (n // 4)}),
        "http_chunked": (60000, {
            "tiny-chunks": lambda n: b"1\r\na\r\n" * (n // 6) + b"0\r\n\r\n", "one-chunk": lambda n: b"%x\r\n" % n + b"a" * n + b"\r\n0\r\n\r\n"}),
        "http_values": (60000, {
            "percent": lambda n: part(0, b"\xff" + b"%41" * (n // 3)), "range": lambda n: part(2, b"\0\0\0\4\0bytes=" + b" " * n + b"1-"), "digits": lambda n: part(2, b"\0\0\0\4\0bytes=0-" + b"9" * n),
            "etags": lambda n: part(3, b"abc\n" + b'"x",' * (n // 4)), "etag-commas": lambda n: part(3, b"abc\n" + b"," * n), "etag-quotes": lambda n: part(3, b"abc\n" + b'"' * n),
            "base64": lambda n: part(5, b"\xff" + b"QUJD" * (n // 4)), "escapes": lambda n: part(5, b"\0" + b"<" * n), "broken-utf8": lambda n: part(5, b"\0" + b"\xff" * n), "path": lambda n: part(6, b"/." * (n // 2)), "number": lambda n: part(6, b"1" * n)}),
        "http_conn": (120000, {
            "requests": lambda n: HEADS["get"] * (n // len(HEADS["get"])), "skipped-chunks": lambda n: with_body("PUT /1 HTTP/1.1", b"1\r\na\r\n" * (n // 6) + b"0\r\n\r\n", "Transfer-Encoding: chunked"),
            "read-chunks": lambda n: with_body("PUT /0 HTTP/1.1", b"1\r\na\r\n" * (n // 6) + b"0\r\n\r\n", "Transfer-Encoding: chunked"), "long-body": lambda n: with_body("PUT /0 HTTP/1.1", b"a" * n, "Content-Length: %d" % n)}),
        "s3_front": (900, {
            "params": lambda n: get("&" * n), "params-names": lambda n: get("a&" * (n // 2)), "prefix": lambda n: get("prefix=" + "%41" * (n // 3)), "token": lambda n: get("list-type=2&continuation-token=" + "ab" * (n // 2)),
            "meta-joined": lambda n: s3("PUT /photos/a HTTP/1.1", *["x-amz-meta-a: "] * min(97, n // 15), body=b"")}),
        "s3_front/xml": (8000, {
            "deep": lambda n: body(open_ + b"<a>" * (n // 7) + b"</a>" * (n // 7) + close), "attributes": lambda n: body(b"<CreateBucketConfiguration " + b" ".join(b"a%d='1'" % i for i in range(n // 9)) + b"/>"),
            "text": lambda n: body(open_ + b"<LocationConstraint>" + b"x" * n + b"</LocationConstraint>" + close), "entities": lambda n: body(open_ + b"&lt;" * (n // 4) + close), "unclosed": lambda n: body(open_ + b"<!--" + b"-" * n),
            "laughs": lambda n: body(b"<!DOCTYPE x [<!ENTITY a '" + b"h" * (n // 2) + b"'>]>" + open_ + b"&a;" * (n // 6) + close), "namespaces": lambda n: body(b"<CreateBucketConfiguration " + b" ".join(b"xmlns:a%d='1'" % i for i in range(n // 15)) + b"/>")}),
        "frame": (60000, {"reply": lambda n: b"\2" + reply(body=b"b" * n), "bye": lambda n: b"\5" + bye(words=b"w" * min(n, 1000)), "hello": lambda n: b"\3" + hello(canonical=b"c" * n + b"\0")}),
        "stream": (24, {"frames": lambda n: b"\2" + fr(4, LONG_META | LONG_BULK, 3, b"x" * 200, 255) * min(24, n // 8)}),
        "rows": (2000, {"attributes": lambda n: b"\x80k\n" + row(attrs=((b"n", b""),) * min(128, n // 125)), "value": lambda n: b"\x80k\n" + row(attrs=((b"n", b"v" * (n - 1000)),)),
                        "keys": lambda n: b"\3" + (b"\1" + b"B" * 16 + str16(b"k") + struct.pack(">QQIBH", 1, 2, 3, 1, 5)) * (n // 40) + b"\0" + str16(b"")}),
        "drive_files": (2000, {"id-name": lambda n: b"\x80kofn-drive 1\n" + b"x" * n, "crcs": lambda n: bytes([0x82, 0, 1]) + b"kofntrlr" + b"\0" * n}),
        "state_json": (20000, {"drives": lambda n: json.dumps({"format": 1, "cluster_name": "c", "host_id": "h", "initialising": False, "drives": [{"name": "d%d" % i, "boot_counter": 1} for i in range(n // 600)]}).encode(),
                               "names": lambda n: b"{" + b",".join(b'"%d":1' % i for i in range(n // 9)) + b"}", "deep": lambda n: b"[" * n, "escapes": lambda n: b'"' + b"\\u00e4" * (n // 6) + b'"', "digits": lambda n: b"1" * n}),
        "config": (20000, {
            "items": lambda n: b"users: [" + b"x," * (n // 2) + b"]", "deep-flow": lambda n: b"a: " + b"[" * n, "deep-map": lambda n: b"a: " + b"{a: " * (n // 4), "deep-block": lambda n: b"- " * (n // 2) + b"x",
            "anchors": lambda n: b"a: [" + b"".join(b"&a%d x," % i for i in range(n // 8)) + b"]", "aliases": lambda n: b"a: [&b x," + b"*b," * (n // 3) + b"]", "keys": lambda n: b"".join(b"a%d: x\n" % i for i in range(n // 8)),
            "long-scalar": lambda n: yaml + b"# " + b"x" * n, "quoted": lambda n: b'a: "' + b"\\x41" * (n // 4) + b'"', "questions": lambda n: b"? " * (n // 2), "tags": lambda n: b"%TAG ! x\n" * (n // 9) + b"--- a", "lines": lambda n: b"\n" * n + yaml,
            "environment": lambda n: yaml + ff + b"KOFN_X=" + b"x" * n, "secret": lambda n: yaml + ff + b"KOFN_CLUSTER_SECRET_FILE=/s" + ff + b"s" * n}),
    }


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)


def main():
    if len(sys.argv) == 2 and not sys.argv[1].startswith("-"):
        for target, make in SEEDS.items():
            for name, data in make().items():
                write(os.path.join(sys.argv[1], target, "s-" + name), data)
    elif len(sys.argv) == 3 and sys.argv[1] == "--grow":
        for target, (base, families) in growing().items():
            for family, make in families.items():
                for times in (1, 2, 4, 8):
                    write(os.path.join(sys.argv[2], target.split("/")[0], family, str(times)), make(base * times))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
