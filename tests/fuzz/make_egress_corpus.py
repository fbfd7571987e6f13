#!/usr/bin/python3
"""Writes tests/fuzz/corpus/egress_*: what the acceptance table has of requests and ClientHellos, and
for the rest the good forms and the wrong ones that matter most.
"""

import json
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
TABLE = HERE.parent / "data" / "egress-vectors.json"


def put(target, name, data):
    place = HERE / "corpus" / f"egress_{target}"
    place.mkdir(parents=True, exist_ok=True)
    (place / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def of_table():
    for vector in json.loads(TABLE.read_text(encoding="utf-8"))["vectors"]:
        given = vector["input"]
        if "bytes" in given:
            put("head", vector["name"], given["bytes"].encode("latin-1"))
        if "hex" in given:
            put("hello", vector["name"], b"\x06" + bytes.fromhex(given["hex"]))


def policies():
    good = {
        "policy": {"mode": "custom", "allow": ["a.example", "*.b.example"], "http": ["c.example"],
                   "ech": "allow-grease"},
        "transformations": [
            {"match": {"host": "a.example", "method": ["GET", "POST"],
                       "path": {"regex": "/v[0-9]+/.*"},
                       "query": [{"name": "q", "value_starts_with": "1"}, {"name": "r"}],
                       "headers": [{"name": "x-api-key", "value_exact": "PLACEHOLDER"}]},
             "set": {"x-api-key": "the real one", "x-other": "one more value"}},
            {"match": {"host": "A.example.", "path": {"starts_with": "/v1/"},
                       "headers": [{"name": "authorization", "value_regex": "Bearer (a|aa)+"}]},
             "set": {"authorization": "Basic dXNlcjpwYXNzd29yZA=="}}],
        "add": {"allow": ["d.example"], "http": [], "transformations": []}}
    put("policy", "good", json.dumps(good))
    put("policy", "everything", '{"policy":{"mode":"allow-all"}}')
    put("policy", "nothing", '{"policy":{"mode":"deny-all"},"add":{"allow":["a.example"]}}')
    put("policy", "ranges", '{"policy":{"cidrs":["0.0.0.0/0"]}}')
    put("policy", "twice", '{"policy":{"mode":"custom","mode":"allow-all"}}')
    put("policy", "nul", '{"policy":{"allow":["a.example\\u0000.b.example"]}}')
    put("policy", "wide", '{"policy":{"allow":["*"," *.com","a.*.example","127.1","[::1]"]}}')
    put("policy", "deep", "[" * 1500)
    put("policy", "not-lists", '{"policy":[],"transformations":{},"add":7}')
    for number, pattern in enumerate(["(a*)*b", "a)|(b", "(((a{10}){10}){10}){10}", "\\\\1", "[[:alpha:]-]",
                                      "[", "a{1,99999}", "x" * 300, "^a|b$", "()",
                                      "(([a-z]|.|..|b)*){0,900}", "[])(]+[[:digit:])]{1,9}",
                                      "x" * 80 + "+" * 60 + "x"]):
        put("policy", f"regex-{number}", json.dumps({"transformations": [
            {"match": {"host": "a.example", "path": {"regex": pattern}}, "set": {"x": "12345678"}}]}))
    for number, (field, value) in enumerate([("Host", "v"), ("x", "a\r\nb"), ("x y", "v"), ("x", ""),
                                             ("x", " v"), ("x", 7), ("", "v")]):
        put("policy", f"set-{number}", json.dumps({"transformations": [
            {"match": {"host": "a.example"}, "set": {field: value}}]}))


def hosts():
    put("host", "names", "a.example\n*.b.example\nA.EXAMPLE.\nx.y.b.example")
    put("host", "apex", "*.b.example\nb.example")
    put("host", "spellings", "127.1\n0x7f000001\n0177.0.0.1\n1.2.3.4.\n1.2.3.4\n[::1]\n[::ffff:1.2.3.4%x]")
    put("host", "ports", "a.example:443\n[::1]:80\na.example:0443\na.example:65536\na.example:")
    put("host", "long", "a" * 64 + ".example\n" + ".".join(["abcdefg"] * 31) + "\n-a.example")
    put("host", "ipv4", "10.0.0.0/8\n240.0.0.0/4\n0.0.0.0/0\n255.255.255.255/32\n255.255.255.255")
    put("host", "ipv4-edges", "10.0.0.0/9\n10.128.0.0/9\n9.255.255.255\n11.0.0.0\n10.127.255.255")
    put("host", "ipv6", "2001:db8::/32\n::/0\nfe80::/10\n64:ff9b::/96\nffff:ffff::\n64:ff9b::a00:1")
    put("host", "mapped", "::ffff:0:0/96\n::ffff:127.0.0.1")
    put("host", "wrong", "10.0.0.1/8\n1.2.3.4/33\n1.2.3.4/08\n::/129\n/8\n1.2.3.4/")


def answers():
    put("scrub", "plain", "\x05the key is abababab, and ababababab/\"+c, too")
    put("scrub", "overlap", "\x02ababababababababab/\"+cabababab")
    put("scrub", "forms", "\x03YWJhYmFiYWI= 6162616261626162 ababababab%2F%22%2Bc ababababab\\/\\\"+c")
    put("scrub", "basic", "\x04Basic dXNlcjphYmFiYWJhYmM= user:ababababc")
    put("scrub", "almost", "\x01abababa" * 20)
    put("scrub", "end", "\x01x abababab/\"+")


if __name__ == "__main__":
    of_table()
    policies()
    hosts()
    answers()
