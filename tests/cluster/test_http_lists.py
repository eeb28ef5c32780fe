"""test_http_lists.py: buckets and their lists over HTTP, the lists against a model; on one host and on three."""
import datetime
import random
import re
import sys
import time
import urllib.parse

from wire import ask, expect, run_on_both, xml_of

BUCKET = "lists"
GOOD_NAMES = ["abc", "a" * 63, "a.b-c", "123", "1.2.3", "my-bucket.example.com", "a-1"]
BAD_NAMES = ["ab", "a" * 64, "Abc", "-abc", "abc-", ".abc", "abc.", "a..b", "a_b", "192.168.5.4", "a.-b", "a-.b",
             "xn--abc", "abc-s3alias", "a%20b", "gr%C3%BCn", "a%2Fb", "a" * 300]


def buckets(c):
    """PUT, HEAD, GET, DELETE of buckets and the list of them"""
    before = time.time()
    for host, name in enumerate(GOOD_NAMES):
        a = expect(c.request("PUT", f"/{name}", host=host % len(c.hosts)), 200)
        assert a.headers["Location"] == f"/{name}" and a.body == b"", a.headers
        expect(c.request("PUT", f"/{name}"), 200)  # again, by its owner, as us-east-1 does
    for name in GOOD_NAMES:
        for host in range(len(c.hosts)):
            a = expect(c.request("HEAD", f"/{name}", host=host), 200)
            assert a.headers["x-amz-bucket-region"] == "us-east-1", a.headers
        root = xml_of(expect(c.request("GET", f"/{name}?location"), 200))
        assert root.tag == "LocationConstraint" and root.text is None
    root = xml_of(expect(c.request("GET", "/"), 200))
    found = {b.find("Name").text: b.find("CreationDate").text for b in root.find("Buckets")}
    assert [b.find("Name").text for b in root.find("Buckets")] == sorted(GOOD_NAMES), found
    for stamp in found.values():
        made = datetime.datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%S.%f%z").timestamp()
        assert before - 1 <= made <= time.time() + 1, stamp
    paged, token = [], ""
    while True:
        root = xml_of(expect(c.request("GET", f"/?max-buckets=3{token}"), 200))
        page = [b.find("Name").text for b in root.find("Buckets")]
        assert len(page) <= 3
        paged += page
        if root.find("ContinuationToken") is None:
            break
        token = "&continuation-token=" + urllib.parse.quote(root.find("ContinuationToken").text)
    assert paged == sorted(GOOD_NAMES), paged
    root = xml_of(expect(c.request("GET", "/?prefix=a"), 200))
    assert [b.find("Name").text for b in root.find("Buckets")] == [n for n in sorted(GOOD_NAMES) if n[0] == "a"]
    for name in GOOD_NAMES:
        expect(c.put(name, "k", b"x"), 200)
        expect(c.request("DELETE", f"/{name}"), 409, "BucketNotEmpty")
        expect(c.request("HEAD", f"/{name}"), 200)
        expect(c.delete(name, "k"), 204)
        a = expect(c.request("DELETE", f"/{name}", host=len(c.hosts) - 1), 204)
        assert a.body == b""
    time.sleep(1.2)  # a gateway believes a look-up for a second, by its own clock
    for name in GOOD_NAMES:
        for method in ("HEAD", "GET", "DELETE"):
            a = expect(c.request(method, f"/{name}"), 404)
            assert method == "HEAD" or a.code() == "NoSuchBucket", a
    assert len(xml_of(c.request("GET", "/")).find("Buckets")) == 0


def bucket_names(c):
    """S3's rules for bucket names, for every method"""
    for name in BAD_NAMES:
        for method in ("PUT", "GET", "HEAD", "DELETE"):
            a = expect(ask(c, method, f"/{name}"), 400)
            assert method == "HEAD" or a.code() == "InvalidBucketName", (name, a)
            a = expect(ask(c, method, f"/{name}/key", body=b"x" if method == "PUT" else b""), 400)
            assert method == "HEAD" or a.code() == "InvalidBucketName", (name, a)
    for bad in ("%", "%zz", "abc%"):
        expect(ask(c, "GET", f"/{bad}"), 400, "InvalidURI")
    expect(ask(c, "PUT", "//key", body=b"x"), 400, "InvalidBucketName")
    expect(ask(c, "PUT", "/"), 405, "MethodNotAllowed")
    assert len(xml_of(c.request("GET", "/")).find("Buckets")) == 0


def bucket_pools(c):
    """x-kofn-pool, LocationConstraint, and bodies that are not what CreateBucket takes"""
    def make(body, status, code=None, **headers):
        expect(c.request("PUT", "/pooled", body, {k.replace("_", "-"): v for k, v in headers.items()}), status, code)

    place = '<CreateBucketConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">' \
            "<LocationConstraint>%s</LocationConstraint></CreateBucketConfiguration>"
    make(place % "mars", 400, "InvalidLocationConstraint")
    make(place % "x" * 500, 400, "MalformedXML")
    make(place % ("x" * 500), 400, "InvalidLocationConstraint")
    make("not xml", 400, "MalformedXML")
    make("<Other/>", 400, "MalformedXML")
    make('<!DOCTYPE a [<!ENTITY b "c">]>' + place % "&b;", 400, "MalformedXML")
    make(" " * 70000, 400, "MalformedXML")
    make(None, 400, "InvalidArgument", x_kofn_pool="other")
    make(None, 400, "InvalidArgument", x_kofn_pool="system")
    expect(c.request("HEAD", "/pooled"), 404)
    for body in (place % "default", place % "us-east-1", place % "", "", None):
        make(body, 200)
        assert c.request("HEAD", "/pooled").headers["x-kofn-pool"] == "default"
        expect(c.request("DELETE", "/pooled"), 204)
    make(None, 200, x_kofn_pool="default")
    expect(c.request("DELETE", "/pooled"), 204)


def recreated(c):
    """A bucket that was deleted and made again is empty, and takes objects at once, at every host"""
    for turn in range(3):
        c.make_bucket("again")
        assert c.list_keys("again") == [], turn
        for host in range(len(c.hosts)):
            expect(c.put("again", f"k{turn}-{host}", b"x" * turn, host=host), 200)
        for host in range(len(c.hosts)):
            expect(c.get("again", f"k{turn - 1}-{host}"), 404, "NoSuchKey")
            expect(c.delete("again", f"k{turn}-{host}"), 204)
        expect(c.request("DELETE", "/again"), 204)


KEYS = sorted(["a", "a/", "a/b", "a/b/c", "a/b/d", "a/c", "a//x", "b", "b c", "b+c", "b%c", "b&<>\"'", "c/d/e/f",
               "c/d/e/g", "c/d/h", "c/dd", "\u00e9t\u00e9/1", "\u00e9t\u00e9/2", "\u4e2d\u6587", "\U0001f600/x",
               "z" * 1000, "z" * 1024, "~", "\x01", "new\nline", "e/" * 200 + "f"] +
              [f"many/{i:03}" for i in range(60)], key=str.encode)


def model(prefix, delimiter, after):
    """What a list holds, page by page put together: keys and common prefixes behind `after`, in byte order."""
    out = []
    for key in KEYS:
        if not key.startswith(prefix) or key.encode() <= after.encode():
            continue
        at = key.find(delimiter, len(prefix)) if delimiter else -1
        entry = (True, key[:at + len(delimiter)]) if at >= 0 else (False, key)
        if entry == (True, after):
            continue  # all of it was listed before; a start inside a prefix still leaves keys that roll up into it
        if entry not in out:
            out.append(entry)
    return out


def short(entries):
    return [(is_prefix, key[:40]) for is_prefix, key in entries]


def pages(c, **query):
    """All entries of a list and the sizes of its pages."""
    entries, sizes, token = [], [], None
    while True:
        q = {"list-type": "2", **{k.replace("_", "-"): v for k, v in query.items()}}
        if token:
            q["continuation-token"] = token
        a = expect(c.request("GET", f"/{BUCKET}?" + urllib.parse.urlencode(q), host=len(sizes) % len(c.hosts)), 200)
        root = xml_of(a)
        word = urllib.parse.unquote if query.get("encoding_type") == "url" else str
        page = [(False, word(e.find("Key").text)) for e in root.findall("Contents")]
        page += [(True, word(e.find("Prefix").text)) for e in root.findall("CommonPrefixes")]
        page.sort(key=lambda e: e[1].encode())
        assert int(root.find("KeyCount").text) == len(page) <= int(root.find("MaxKeys").text), a.body
        assert root.find("Name").text == BUCKET
        assert word(root.find("Prefix").text or "") == query.get("prefix", "")
        if query.get("delimiter"):
            assert word(root.find("Delimiter").text) == query["delimiter"]
        if query.get("start_after"):
            assert word(root.find("StartAfter").text) == query["start_after"]
        if token:
            assert root.find("ContinuationToken").text == token
        entries += page
        sizes.append(len(page))
        more = root.find("NextContinuationToken")
        assert (more is not None) == (root.find("IsTruncated").text == "true"), a.body
        if more is None:
            return entries, sizes
        assert len(page) == int(q["max-keys"]) and len(sizes) < 500, "a short page that is not the last"
        token = more.text


def lists(c):
    """ListObjectsV2 against a model: prefix, delimiter, max-keys, start-after, continuation-token"""
    c.make_bucket(BUCKET)
    for i, key in enumerate(KEYS):
        expect(c.put(BUCKET, key, b"x" * i, host=i % len(c.hosts)), 200)
    dead = ["a/dead", "dead/1", "dead/2", "many/000x", "zz"]
    for key in dead:
        expect(c.put(BUCKET, key, b"dead"), 200)
        expect(c.delete(BUCKET, key), 204)
    turns = random.Random(5)
    prefixes = ("", "a", "a/", "a/b", "many/", "c/d/", "\u00e9t\u00e9", "nothing", "z" * 1000, "e/" * 100)
    combinations = [(p, d, a, m) for p in prefixes for d in ("", "/", "/b", "c", "\u00e9")
                    for a in ("", "a", "a/", "b", "many/030", "~", "a/b/c") for m in (1, 2, 7, 1000)]
    for prefix, delimiter, after, max_keys in turns.sample(combinations, 150):
        query = {"prefix": prefix, "delimiter": delimiter, "start_after": after, "max_keys": str(max_keys)}
        got, _ = pages(c, encoding_type="url", **query)
        want = model(prefix, delimiter, after)
        assert got == want, f"{query}: {short(got)}\nexpected {short(want)}"
    everything, sizes = pages(c, max_keys="10", encoding_type="url")
    assert [k for _, k in everything] == KEYS and len(sizes) > 5


def list_fields(c):
    """Sizes, ETags, dates, owners and unencoded keys of a list; version 1 as well"""
    root = xml_of(c.request("GET", f"/{BUCKET}?list-type=2&prefix=many/&max-keys=5&fetch-owner=true"))
    for e in root.findall("Contents"):
        h = c.head(BUCKET, e.find("Key").text)
        assert e.find("Size").text == h.headers["Content-Length"]
        assert e.find("ETag").text == h.headers["ETag"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", e.find("LastModified").text)
        assert e.find("StorageClass").text == "STANDARD" and e.find("Owner").find("ID").text
    plain = [k for k in KEYS if "\x01" not in k]
    for key in plain:
        q = urllib.parse.urlencode({"list-type": "2", "prefix": key, "max-keys": "1"})
        root = xml_of(c.request("GET", f"/{BUCKET}?{q}"))
        assert root.find("Contents").find("Key").text == key, key
        assert root.find("Contents").find("Owner") is None and root.find("EncodingType") is None
    marker, seen = "", []
    while True:
        q = urllib.parse.urlencode({"prefix": "many/", "max-keys": "7", "marker": marker})
        root = xml_of(c.request("GET", f"/{BUCKET}?{q}"))
        assert (root.find("Marker").text or "") == marker and root.find("KeyCount") is None
        seen += [e.find("Key").text for e in root.findall("Contents")]
        if root.find("IsTruncated").text == "false":
            break
        marker = seen[-1]
    assert seen == [k for k in KEYS if k.startswith("many/")], seen
    root = xml_of(c.request("GET", f"/{BUCKET}?delimiter=/&max-keys=1&marker=a"))
    assert root.find("NextMarker").text == root.find("CommonPrefixes").find("Prefix").text == "a/"


def list_refused(c):
    """Parameters that mean nothing: 400, and max-keys=0: an empty page"""
    def refused(query, status=400, code="InvalidArgument"):
        expect(c.request("GET", f"/{BUCKET}?{query}"), status, code)

    for bad in ("max-keys=-1", "max-keys=x", "max-keys=1x", "max-keys=99999999999", "encoding-type=xml",
                "continuation-token=", "continuation-token=abc", "continuation-token=" + "00" * 40,
                "prefix=" + "p" * 1025, "start-after=" + "p" * 1025):
        refused(f"list-type=2&{bad}")
    refused("list-type=3")
    refused("prefix=%", code="InvalidURI")
    refused("prefix=%zz", code="InvalidURI")
    refused("&".join(f"p{i}=1" for i in range(100)), code="InvalidURI")
    root = xml_of(c.request("GET", f"/{BUCKET}?list-type=2&max-keys=0"))
    assert root.find("KeyCount").text == "0" and root.find("IsTruncated").text == "false", root
    root = xml_of(c.request("GET", f"/{BUCKET}?list-type=2&max-keys=2000"))
    assert len(root.findall("Contents")) == len(KEYS)
    token = xml_of(c.request("GET", f"/{BUCKET}?list-type=2&max-keys=1")).find("NextContinuationToken").text
    changed = ("0" if token[0] != "0" else "1") + token[1:]
    refused(f"list-type=2&continuation-token={changed}")
    c.make_bucket("other-lists")
    expect(c.request("GET", f"/other-lists?list-type=2&continuation-token={token}"), 400, "InvalidArgument")
    expect(c.request("DELETE", "/other-lists"), 204)
    for bucket in ("nothing-here", "nothing-here?list-type=2"):
        expect(c.request("GET", f"/{bucket}"), 404, "NoSuchBucket")


def main():
    run_on_both([buckets, bucket_names, bucket_pools, recreated, lists, list_fields, list_refused])
    return 0


if __name__ == "__main__":
    sys.exit(main())
