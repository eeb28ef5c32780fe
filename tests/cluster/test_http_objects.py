"""test_http_objects.py: objects over HTTP: headers, ranges, conditions, digests, keys; on one host and on three."""
import base64
import datetime
import email.utils
import hashlib
import random
import sys
import time
import urllib.parse

from wire import Wire, ask, auth_line, expect, head, run_on_both

BUCKET = "objects"
KIB, MIB = 1 << 10, 1 << 20
UNIT, K = 64 * KIB, 2
# Around every edge: nothing, inline chunks of 16 KiB, one unit, one stripe, several stripes.
SIZES = [0, 1, 63, 64, 1000, 32 * KIB, 32 * KIB + 1, UNIT - 1, UNIT, K * UNIT - 1, K * UNIT, K * UNIT + 1, 5 * MIB + 3]


def bytes_of(size, seed=1):
    return random.Random(seed * 1000003 + size).randbytes(size)


def md5_hex(data):
    return hashlib.md5(data).hexdigest()


def http_date(seconds):
    return email.utils.formatdate(seconds, usegmt=True)


def bucket_once(c):
    """PUT of a bucket"""
    c.make_bucket(BUCKET)


def put_get_head_delete(c):
    """PUT, GET, HEAD and DELETE of every size, with ETag, Last-Modified and lengths"""
    for size in SIZES:
        data, key = bytes_of(size), f"size/{size}"
        before = int(time.time())
        put = expect(c.put(BUCKET, key, data), 200)
        etag = f'"{md5_hex(data)}"'
        assert put.headers["ETag"] == etag and put.body == b"", (put.headers, etag)
        for host in range(len(c.hosts)):
            got = expect(c.get(BUCKET, key, host=host), 200)
            assert got.body == data, f"{size} bytes came back as {len(got.body)}"
            seen = expect(c.head(BUCKET, key, host=host), 200)
            assert seen.body == b""
            for a in (got, seen):
                assert a.headers["Content-Length"] == str(size), a.headers
                assert a.headers["ETag"] == etag, a.headers
                assert a.headers["Accept-Ranges"] == "bytes", a.headers
                assert a.headers["Content-Type"] == "binary/octet-stream", a.headers
                stamp = email.utils.parsedate_to_datetime(a.headers["Last-Modified"]).timestamp()
                assert before <= stamp <= time.time() + 1, a.headers["Last-Modified"]
    key = "size/1"
    for _ in range(2):
        gone = expect(c.delete(BUCKET, key), 204)
        assert gone.body == b"" and "Content-Length" not in gone.headers, gone.headers
    expect(c.get(BUCKET, key), 404, "NoSuchKey")
    assert expect(c.head(BUCKET, key), 404).body == b""
    for method in ("GET", "HEAD", "PUT", "DELETE"):
        a = expect(c.request(method, "/no-such-bucket/key", b"x" if method == "PUT" else None), 404)
        assert method == "HEAD" or a.code() == "NoSuchBucket", a


def overwrite(c):
    """A second PUT replaces the first, with its headers"""
    expect(c.put(BUCKET, "twice", bytes_of(MIB), headers={"Content-Type": "text/a", "x-amz-meta-a": "1"}), 200)
    expect(c.put(BUCKET, "twice", b"second"), 200)
    got = expect(c.get(BUCKET, "twice"), 200)
    assert got.body == b"second" and got.headers["Content-Type"] == "binary/octet-stream", got.headers
    assert "x-amz-meta-a" not in got.headers, got.headers


def stored_headers(c):
    """Content-*, Cache-Control, Expires and x-amz-meta-* come back as they were sent"""
    sent = {"Content-Type": "text/plain; charset=utf-8", "Content-Encoding": "gzip, br",
            "Content-Disposition": 'attachment; filename="a b.txt"', "Content-Language": "de, en",
            "Cache-Control": "max-age=60, private", "Expires": "Wed, 21 Oct 2065 07:28:00 GMT",
            "x-amz-meta-Colour": "  dark  blue ", "X-Amz-Meta-empty": "", "x-amz-meta-utf": "gr\xc3\xbcn"}
    expect(c.put(BUCKET, "headers", b"body", headers=sent), 200)
    for a in (expect(c.get(BUCKET, "headers"), 200), expect(c.head(BUCKET, "headers"), 200)):
        for name, value in sent.items():
            assert a.headers.get(name) == value.strip(), f"{name}: {a.headers.get(name)!r}, sent {value!r}"
    twice = ask(c, "PUT", f"/{BUCKET}/twice-meta", "x-amz-meta-list: a", "X-AMZ-META-LIST: b", body=b"x")
    expect(twice, 200)
    assert c.head(BUCKET, "twice-meta").headers["x-amz-meta-list"] == "a,b"
    many = {f"x-amz-meta-{i}": "v" * 400 for i in range(6)}  # 2 KiB is S3's limit
    expect(c.put(BUCKET, "meta", b"x", headers=many), 400, "MetadataTooLarge")
    expect(c.put(BUCKET, "meta", b"x", headers={"x-amz-meta-a": "v" * 2047}), 200)
    expect(c.put(BUCKET, "class", b"x", headers={"x-amz-storage-class": "STANDARD_IA"}), 200)
    assert c.head(BUCKET, "class").headers["x-amz-storage-class"] == "STANDARD_IA"
    expect(c.put(BUCKET, "class", b"x", headers={"x-amz-storage-class": "FASTER"}), 400, "InvalidStorageClass")


def range_of(text, size):
    """What RFC 9110, 14 says of a range: None for the whole, (first, last), or "416"."""
    if not text.startswith("bytes=") or "," in text:
        return None
    first, dash, last = text[6:].partition("-")
    if not dash or not (first or last) or not (first + last).isdigit():
        return None
    if first == "":
        n = min(int(last), size)
        return "416" if n == 0 else (size - n, size - 1)
    if last and int(last) < int(first):
        return None
    return "416" if int(first) >= size else (int(first), min(int(last or size), size - 1))


def ranges(c):
    """Single ranges: inside, suffix, open-ended, beyond the end, malformed, over every edge"""
    asked = 0
    for size in (0, 1, 1000, K * UNIT + 1, 3 * MIB + 7):
        data, key = bytes_of(size, 2), f"range/{size}"
        expect(c.put(BUCKET, key, data), 200)
        edges = sorted({0, 1, 17, UNIT - 1, UNIT, K * UNIT, size // 2, size - 1, size, size + 5} - {-1})
        texts = [f"bytes={a}-{b}" for a in edges for b in (a, a + 1, a + UNIT, size - 1) if b >= 0]
        texts += [f"bytes={a}-" for a in edges] + [f"bytes=-{n}" for n in (0, 1, 17, size, size + 9)]
        texts += ["bytes=5-2", "bytes=", "bytes=-", "bytes=a-b", "bytes=0-0,2-3", "lines=1-2", "bytes=1",
                  "bytes=99999999999999999999999-", "bytes=0-99999999999999999999999"]
        for text in texts:
            want = range_of(text, size)
            a = c.get(BUCKET, key, headers={"Range": text})
            asked += 1
            if want == "416":
                expect(a, 416, "InvalidRange")
                assert a.headers["Content-Range"] == f"bytes */{size}", (text, a.headers)
            elif want is None:
                assert expect(a, 200).body == data, text
                assert "Content-Range" not in a.headers, text
            else:
                first, last = want
                assert expect(a, 206).body == data[first:last + 1], f"{text} of {size}: {len(a.body)} bytes"
                assert a.headers["Content-Range"] == f"bytes {first}-{last}/{size}", (text, a.headers)
                assert a.headers["ETag"] == f'"{md5_hex(data)}"'
                h = expect(c.head(BUCKET, key, headers={"Range": text}), 206)
                assert h.headers["Content-Length"] == str(last - first + 1), (text, h.headers)
    assert asked > 150, asked


def read_conditions(c):
    """If-Match, If-None-Match, If-(Un)Modified-Since and If-Range on GET and HEAD, in RFC 9110's order"""
    data = bytes_of(1000, 3)
    expect(c.put(BUCKET, "cond", data), 200)
    etag = f'"{md5_hex(data)}"'
    changed = email.utils.parsedate_to_datetime(c.head(BUCKET, "cond").headers["Last-Modified"]).timestamp()
    at, older, newer = http_date(changed), http_date(changed - 10), http_date(changed + 10)
    moment = datetime.datetime.fromtimestamp(changed - 10, datetime.timezone.utc)
    old_forms = [moment.strftime("%A, %d-%b-%y %H:%M:%S GMT"), moment.strftime("%a %b ") + f"{moment.day:2}" +
                 moment.strftime(" %H:%M:%S %Y")]
    table = [
        ({"If-Match": etag}, 200), ({"If-Match": '"other"'}, 412), ({"If-Match": "*"}, 200),
        ({"If-Match": f'"other", {etag}'}, 200), ({"If-Match": etag.strip('"')}, 200),
        ({"If-None-Match": etag}, 304), ({"If-None-Match": '"other"'}, 200), ({"If-None-Match": "*"}, 304),
        ({"If-None-Match": f"W/{etag}"}, 304), ({"If-None-Match": f'"x",{etag} ,"y"'}, 304),
        ({"If-Unmodified-Since": at}, 200), ({"If-Unmodified-Since": older}, 412),
        ({"If-Unmodified-Since": newer}, 200), ({"If-Unmodified-Since": "yesterday"}, 200),
        ({"If-Modified-Since": at}, 304), ({"If-Modified-Since": older}, 200), ({"If-Modified-Since": newer}, 304),
        ({"If-Modified-Since": "yesterday"}, 200),
        # A tag is asked before, and instead of, a date.
        ({"If-Match": etag, "If-Unmodified-Since": older}, 200),
        ({"If-Match": '"other"', "If-Unmodified-Since": newer}, 412),
        ({"If-None-Match": '"other"', "If-Modified-Since": newer}, 200),
        ({"If-None-Match": etag, "If-Modified-Since": older}, 304),
        ({"If-Match": etag, "If-None-Match": etag}, 304), ({"If-Match": '"other"', "If-None-Match": etag}, 412),
        ({"If-Unmodified-Since": older, "If-None-Match": etag}, 412),
        # A condition is asked before a range.
        ({"If-None-Match": etag, "Range": "bytes=5000-"}, 304), ({"If-Match": '"other"', "Range": "bytes=0-1"}, 412),
        ({"Range": "bytes=0-1", "If-Range": etag}, 206), ({"Range": "bytes=0-1", "If-Range": '"other"'}, 200),
        ({"Range": "bytes=0-1", "If-Range": at}, 206), ({"Range": "bytes=0-1", "If-Range": older}, 200),
        ({"Range": "bytes=5000-", "If-Range": '"other"'}, 200),
    ] + [({"If-Unmodified-Since": form}, 412) for form in old_forms]
    for headers, status in table:
        for method in ("GET", "HEAD"):
            a = c.request(method, c.path(BUCKET, "cond"), headers=headers)
            assert a.status == status, f"{method} {headers}: {a}, expected {status}"
            if status == 304:
                assert a.body == b"" and a.headers["ETag"] == etag and a.headers["Last-Modified"] == at, a.headers
            if status == 412 and method == "GET":
                assert a.code() == "PreconditionFailed", a
    expect(c.get(BUCKET, "nothing", headers={"If-None-Match": "*"}), 404, "NoSuchKey")


def write_conditions(c):
    """If-None-Match: * and If-Match on PUT and DELETE"""
    def holds(body):
        assert expect(c.get(BUCKET, "wc"), 200).body == body

    expect(c.put(BUCKET, "wc", b"none", headers={"If-Match": '"x"'}), 404, "NoSuchKey")
    expect(c.put(BUCKET, "wc", b"first", headers={"If-None-Match": "*"}), 200)
    expect(c.put(BUCKET, "wc", b"second", headers={"If-None-Match": "*"}), 412, "PreconditionFailed")
    holds(b"first")
    expect(c.put(BUCKET, "wc", b"third", headers={"If-Match": f'"{md5_hex(b"second")}"'}), 412, "PreconditionFailed")
    expect(c.put(BUCKET, "wc", bytes_of(MIB), headers={"If-Match": f'"{md5_hex(b"first")}"'}), 200)
    expect(c.put(BUCKET, "wc", b"x", headers={"If-None-Match": '"x"'}), 501, "NotImplemented")
    expect(c.put(BUCKET, "wc", b"x", headers={"If-None-Match": "*", "If-Match": '"x"'}), 400, "InvalidRequest")
    expect(c.delete(BUCKET, "wc", headers={"If-Match": '"other"'}), 412, "PreconditionFailed")
    holds(bytes_of(MIB))
    expect(c.delete(BUCKET, "wc", headers={"If-Match": f'"{md5_hex(bytes_of(MIB))}"'}), 204)
    expect(c.get(BUCKET, "wc"), 404, "NoSuchKey")
    expect(c.put(BUCKET, "wc", b"again", headers={"If-None-Match": "*"}), 200)
    holds(b"again")


def content_md5(c):
    """Content-MD5: good, of other bytes, and malformed; what was there before stays"""
    for size in (0, 10, 3 * MIB):
        data, key = bytes_of(size, 4), f"md5/{size}"
        good = base64.b64encode(hashlib.md5(data).digest()).decode()
        other = base64.b64encode(hashlib.md5(b"other").digest()).decode()
        expect(c.put(BUCKET, key, data, headers={"Content-MD5": other}), 400, "BadDigest")
        expect(c.get(BUCKET, key), 404, "NoSuchKey")
        expect(c.put(BUCKET, key, data, headers={"Content-MD5": good}), 200)
        expect(c.put(BUCKET, key, data + b"x", headers={"Content-MD5": good}), 400, "BadDigest")
        assert expect(c.get(BUCKET, key), 200).body == data
        for bad in ("", "abc", "!" * 24, good[:-2], good + "AAAA", base64.b64encode(b"x" * 15).decode()):
            expect(c.put(BUCKET, key, data, headers={"Content-MD5": bad}), 400, "InvalidDigest")
        assert expect(c.get(BUCKET, key), 200).body == data


ODD_KEYS = ["a//b", "//", "/", ".", "..", "../..", "a/./b", "a/../b", "./a", "a/", "a%b", "100%25", "%2F", "a+b", "a b",
            " ", "a b+c%d&e=f?g#h", "\t\n\r", "\x01\x7f", "gr\u00fcn \u4e2d\u6587 \U0001f600", "<&>\"'",
            "~*'();:@$,[]{}|\\^`", "a" * 1024, "\u4e2d" * 341 + "x", "a/" * 512, "data.mdb", "drive.id", "\ufffe"]


def keys(c):
    """Keys are opaque: slashes, dots, percent, plus, spaces, control characters, UTF-8, up to 1024 bytes"""
    expect(c.request("PUT", "/oddkeys"), 200)
    for i, key in enumerate(ODD_KEYS):
        expect(c.put("oddkeys", key, f"{i}".encode()), 200)
    for i, key in enumerate(ODD_KEYS):
        got = expect(c.get("oddkeys", key), 200)
        assert got.body == f"{i}".encode(), f"{key!r} holds {got.body!r}"
    listed = c.list_keys("oddkeys", "max-keys=5")
    assert listed == sorted(ODD_KEYS, key=str.encode), [k for k in listed if k not in ODD_KEYS]
    # The same key in other spellings of its escapes; plus is no space in a path.
    for spelled, key in (("%61%2f%2Fb", "a//b"), ("a+b", "a+b"), ("a%20b", "a b"), ("a%2Bb", "a+b"),
                         ("%7E*'();:@$,%5b]%7B}|\\%5E`", "~*'();:@$,[]{}|\\^`")):
        a = expect(ask(c, "GET", f"/oddkeys/{spelled}"), 200)
        assert a.body == f"{ODD_KEYS.index(key)}".encode(), f"{spelled!r} is read as another key: {a.body!r}"
    for key in ODD_KEYS:
        expect(c.delete("oddkeys", key), 204)
    assert c.list_keys("oddkeys") == []
    expect(c.request("DELETE", "/oddkeys"), 204)


def bad_keys(c):
    """1025 bytes, NUL, invalid UTF-8, bad escapes and raw bytes >= 0x80 in the target"""
    for method in ("GET", "PUT", "DELETE"):
        def refused(target, status, code):
            expect(ask(c, method, f"/{BUCKET}/{target}"), status, code)

        refused("k" * 1025, 400, "KeyTooLongError")
        refused(urllib.parse.quote("\u4e2d" * 342), 400, "KeyTooLongError")
        for bad in ("a%00b", "%FF", "%C3", "%C0%AF", "%ED%A0%80", "%F4%90%80%80", "%", "%1", "a%", "%zz", "%2", "%%41"):
            refused(bad, 400, "InvalidURI")
        for raw in ("\x80", "\xff", "gr\xc3\xbcn", "k?prefix=\xe9", "a#b"):
            refused(raw, 400, "InvalidURI")


def head_has_no_body(c):
    """HEAD answers carry no body, also errors, and the connection goes on"""
    with Wire(c.hosts[0].s3_port) as w:
        for target, status in ((f"/{BUCKET}/size/64", 200), (f"/{BUCKET}/nothing", 404), (f"/{BUCKET}/%", 400),
                               ("/no-such-bucket", 404), (f"/{BUCKET}", 200), (f"/{BUCKET}/size/5242883", 200)):
            w.send(head("HEAD", target, auth_line(c)))
            a = w.answer("HEAD")
            assert a.status == status, (target, a)
            assert w.data == b"", f"a body behind HEAD {target}: {w.data[:100]!r}"
        w.send(head("GET", f"/{BUCKET}/size/64", auth_line(c)))
        assert w.answer().body == bytes_of(64)


def main():
    run_on_both([bucket_once, put_get_head_delete, overwrite, stored_headers, ranges, read_conditions, write_conditions,
                 content_md5, keys, bad_keys, head_has_no_body])
    return 0


if __name__ == "__main__":
    sys.exit(main())
