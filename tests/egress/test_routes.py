"""Credential routes: what goes out has the real value, what comes back never has."""

import base64
import gzip
import hashlib
import http.client
import io
import json
import os
import re
import shutil
import socket
import tarfile
import threading
import zipfile

import pytest
from authority import over_tls
from guest import (PLACEHOLDER, POLICY, SECRET, Relay, ask, read_all, reason_of,
                   status_of, whole_answer)
from servers import application, git_application, serve
from test_tunnels import make_repository
from world import GUEST, PATIENCE, PROXY, PUBLIC_TLS, await_true

ROUTE = "/https/api.example.com"


def request(path, *fields, method="GET", host=f"{PROXY}:3128"):
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *fields, "", ""]
    return "\r\n".join(lines).encode()


KEY = f"x-api-key: {PLACEHOLDER}"


def fields_of(told, name):
    return [value for field, value in told["fields"] if field.lower() == name]


def exchange(proxy, *arguments, body=b"", **more):
    """One request; its head and whole body."""
    stream = proxy.connect()
    head, rest = ask(stream, request(*arguments, "Connection: close", **more) + body)
    return head, whole_answer(head, rest, stream)


def test_curl_gets_an_answer_with_the_placeholder_swapped(relay, authority, api):
    done = relay.run(authority, "curl", "-sS", "-H", KEY, "-d", "{}",
                     f"{relay.url}{ROUTE}/v1/messages?beta=true")
    assert json.loads(done.stdout)["size"] == 2, done.stderr
    told = api.told[0]
    assert told["line"] == "POST /v1/messages?beta=true HTTP/1.1"
    assert fields_of(told, "x-api-key") == [SECRET]
    assert fields_of(told, "host") == ["api.example.com"]
    assert fields_of(told, "accept-encoding") in ([], ["identity"])


def test_only_the_placeholder_itself_is_swapped(proxy, api):
    for key in (PLACEHOLDER + "x", "x" + PLACEHOLDER, PLACEHOLDER.lower(), ""):
        exchange(proxy, ROUTE + "/", f"x-api-key: {key}")
    exchange(proxy, f"{ROUTE}/?key={PLACEHOLDER}", f"x-other: {PLACEHOLDER}")
    assert SECRET not in json.dumps(api.told) and len(api.told) == 5


def test_every_copy_of_the_header_is_replaced(proxy, api):
    exchange(proxy, ROUTE + "/", KEY, "X-API-Key: other", "x-Api-keY: third")
    assert fields_of(api.told[0], "x-api-key") == [SECRET]


def test_a_credential_is_for_its_own_host(proxy, api):
    """P101: neither another host of the list nor a Host field gets it."""
    exchange(proxy, "/https/github.com/", KEY)
    exchange(proxy, "/https/a.cdn.example.net/", KEY)
    assert all(fields_of(told, "x-api-key") == [PLACEHOLDER] for told in api.told)
    api.told.clear()
    exchange(proxy, ROUTE + "/", KEY, host="github.com")
    assert fields_of(api.told[0], "host") == ["api.example.com"]
    head, _ = exchange(proxy, ROUTE + "/", KEY, "Host: github.com")
    assert status_of(head) == 400
    head, _ = exchange(proxy, "http://api.example.com/https/api.example.com/", KEY)
    assert status_of(head) in (400, 403) and len(api.told) == 1


def test_a_connection_cannot_name_the_credential_away(proxy, api):
    head, _ = exchange(proxy, ROUTE + "/", KEY, "Connection: x-api-key")
    assert status_of(head) == 400 or SECRET not in json.dumps(api.told)


def test_hop_by_hop_fields_stay_here(proxy, api):
    exchange(proxy, ROUTE + "/", KEY, "Proxy-Authorization: Basic eDp5", "Keep-Alive: 5",
             "Proxy-Connection: keep-alive", "TE: trailers", "Connection: x-drop", "x-drop: 1",
             "Range: bytes=0-3")
    names = {name.lower() for name, _ in api.told[0]["fields"]}
    assert not names & {"proxy-authorization", "proxy-connection", "keep-alive", "te", "x-drop",
                        "range"}


@pytest.mark.parametrize("path", ["echo-field", "echo-identity", "echo-bytes", "echo-gzip",
                                  "echo-deflate", "echo-br", "echo-zstd", "echo-two",
                                  "echo-strange", "echo-trailer", "echo-error", "echo-reason",
                                  "redirect"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_answer_never_holds_the_real_value(relay, authority, api, path, method):
    """Decoded by curl too, for what a guest can undo it will."""
    url = f"{relay.url}{ROUTE}/{path}"
    for words in ((), ("--compressed",), ("--compressed", "--raw")):
        done = relay.run(authority, "curl", "-sSi", "-X", method, "-H", KEY, *words, url)
        assert SECRET.encode() not in done.stdout + done.stderr
        assert b" 200" in done.stdout[:15] or done.stdout[9:12] in (b"401", b"307", b"502")
    assert SECRET in json.dumps(api.told)
    if path in ("echo-identity", "echo-bytes", "echo-field"):
        assert PLACEHOLDER.encode() in done.stdout


def test_a_scrubbed_answer_is_otherwise_unchanged(proxy, api):
    head, body = exchange(proxy, ROUTE + "/echo-identity", KEY)
    assert json.loads(body) == {"you sent": PLACEHOLDER, "again": PLACEHOLDER}
    length = re.search(r"(?i)content-length: (\d+)", head)
    assert length is None or int(length.group(1)) == len(body)
    _, body = exchange(proxy, ROUTE + "/echo-bytes", KEY)
    assert body == f"before {PLACEHOLDER} after".encode()


def test_an_answer_without_a_credential_passes(proxy, api):
    """It may be encoded, or taken out of its encoding."""
    api.secret = "nothing that is registered"
    head, body = exchange(proxy, "/https/a.cdn.example.net/echo-gzip", "Accept-Encoding: gzip")
    if "content-encoding: gzip" in head.lower():
        body = gzip.decompress(body)
    assert status_of(head) == 200 and body == api.secret.encode()


def test_encoded_copies_of_the_value_are_scrubbed(proxy, api):
    for form in (base64.b64encode(SECRET.encode()).decode(), SECRET.encode().hex()):
        api.secret = form
        _, body = exchange(proxy, ROUTE + "/echo-identity", KEY)
        assert form.encode() not in body


def test_the_decoded_user_and_secret_of_a_basic_value_are_scrubbed(proxy, api):
    for form in ("Basic UkVBTC1TRUNSRVQ=", "UkVBTC1TRUNSRVQ=", "REAL-SECRET"):
        api.secret = form
        _, body = exchange(proxy, "/https/github.com/echo-identity",
                           "Authorization: Basic UExBQ0VIT0xERVI=")
        assert form.encode() not in body


def test_a_redirect_is_the_guests_to_follow(proxy, api, world):
    head, _ = exchange(proxy, ROUTE + "/redirect", KEY)
    assert status_of(head) == 307 and f"location: https://evil.test/?k={PLACEHOLDER}" in \
        head.lower().replace(PLACEHOLDER.lower(), PLACEHOLDER)
    assert len(api.told) == 1 and all(name != "evil.test" for name, _ in world.names.asked)


def test_events_arrive_as_they_are_sent(proxy, api):
    stream = proxy.connect()
    head, body = ask(stream, request(ROUTE + "/events", KEY))
    assert status_of(head) == 200
    for number in range(5):
        wanted = b"data: event %d\n\n" % number
        while wanted not in body:
            piece = stream.recv(1000)
            assert piece, body
            body += piece
        assert b"event %d" % (number + 1) not in body
        api.gate.set()


def resident_kib(process):
    with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1))


def assert_flat(before, peak):
    """A sanitizer keeps what was freed."""
    assert peak - before < 8192 or os.environ.get("SANDBOX_TEST_SANITIZED"), \
        f"{before} KiB grew to {peak} KiB"


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_large_upload_streams(proxy, api, is_chunked):
    size, piece = 1 << 27, bytes(range(256)) * 1024
    exchange(proxy, ROUTE + "/", KEY)
    before = resident_kib(proxy.process)
    stream, digest, peak = proxy.connect(), hashlib.sha256(), 0
    framing = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {size}"
    stream.sendall(request(ROUTE + "/up", KEY, framing, "Connection: close", method="PUT"))
    for number in range(size // len(piece)):
        stream.sendall(b"%x\r\n%s\r\n" % (len(piece), piece) if is_chunked else piece)
        digest.update(piece)
        if number % 64 == 0:
            peak = max(peak, resident_kib(proxy.process))
    head, rest = ask(stream, b"0\r\n\r\n" if is_chunked else b"")
    answer = json.loads(whole_answer(head, rest, stream))
    assert answer == {"size": size, "digest": digest.hexdigest()}
    assert_flat(before, peak)


def test_a_large_answer_streams_at_the_guests_pace(proxy, api):
    exchange(proxy, ROUTE + "/", KEY)
    before, stream = resident_kib(proxy.process), proxy.connect()
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    head, body = ask(stream, request(ROUTE + "/large", KEY, "Connection: close"))
    peak, count = before, len(body)
    while piece := stream.recv(1 << 16):
        count += len(piece)
        if count % 64 == 0:
            peak = max(peak, resident_kib(proxy.process))
    assert status_of(head) == 200 and count >= 1 << 26
    assert_flat(before, peak)


def test_an_expectation_never_locks_up(relay, authority, api):
    done = relay.run(authority, "curl", "-sS", "-H", KEY, "-H", "Expect: 100-continue",
                     "--expect100-timeout", "25", "--data-binary", "@/proc/self/cmdline",
                     "-m", "15", f"{relay.url}{ROUTE}/v1")
    assert json.loads(done.stdout)["size"] > 0, done.stderr


def test_connections_are_kept_for_several_requests(relay, api):
    client = http.client.HTTPConnection("127.0.0.1", relay.port, timeout=PATIENCE)
    for number in range(20):
        client.request("POST", f"{ROUTE}/{number}", b"y" * number, {"x-api-key": PLACEHOLDER})
        assert json.load(client.getresponse())["size"] == number
    client.request("GET", "/https/evil.test/")
    assert client.getresponse().status == 403
    assert [fields_of(told, "x-api-key") for told in api.told] == [[SECRET]] * 20


def test_heads_and_bodies_of_other_methods(proxy, api):
    for method in ("HEAD", "DELETE", "PATCH", "OPTIONS"):
        head, body = exchange(proxy, ROUTE + "/", KEY, method=method)
        assert status_of(head) == 200 and (body == b"") == (method == "HEAD"), method


def test_a_broken_answer_is_not_told_as_a_whole_one(relay, authority, api):
    done = relay.run(authority, "curl", "-sS", "-H", KEY, f"{relay.url}{ROUTE}/close")
    assert done.returncode in (18, 56), done.stderr


@pytest.mark.parametrize("case", ["another name", "another authority", "expired", "no TLS"])
def test_nothing_is_sent_to_a_server_that_cannot_prove_itself(proxy, authority, world, case):
    kind = application()
    if case == "another authority":
        authority.make("stranger", "/CN=Stranger", "basicConstraints=critical,CA:TRUE",
                       "keyUsage=critical,keyCertSign")
    if case == "no TLS":
        world.servers.behind[PUBLIC_TLS] = serve(kind)
    else:
        context = {"another name": lambda: authority.context("other.example"),
                   "another authority": lambda: authority.context("api.example.com",
                                                                  signer="stranger"),
                   "expired": lambda: authority.expired("api.example.com")}[case]()
        world.servers.behind[PUBLIC_TLS] = over_tls(context, serve(kind))
    world.names.anything = PUBLIC_TLS
    head, body = exchange(proxy, ROUTE + "/", KEY)
    assert (status_of(head), reason_of(head)) in ((502, "certificate"), (502, "upstream-failed"))
    assert case == "no TLS" or reason_of(head) == "certificate"
    assert not kind.told and PUBLIC_TLS.encode() not in body
    assert all(SECRET.encode() not in seen.data for seen in world.servers.seen)


def test_rules_match_on_method_path_query_and_headers(proxy, api):
    def rule(**match):
        return {"match": {"host": "api.example.com", **match}, "set": {"x-set": "yes"}}
    cases = [
        (rule(method=["POST"]), {"method": "POST"}, {"method": "GET"}),
        (rule(path={"exact": "/a"}), {"path": "/a"}, {"path": "/a/b"}),
        (rule(path={"starts_with": "/a/"}), {"path": "/a/b"}, {"path": "/b/a/"}),
        (rule(path={"regex": "/v[0-9]+/x"}), {"path": "/v12/x"}, {"path": "/v12/xy"}),
        (rule(query=[{"name": "k", "value_exact": "v"}]), {"path": "/?j=1&k=v"}, {"path": "/?k=w"}),
        (rule(headers=[{"name": "X-A", "value_starts_with": "b"}]), {"fields": ["x-a: bc"]},
         {"fields": ["x-a: cb"]}),
        (rule(headers=[{"name": "X-A", "value_regex": "b+"}]), {"fields": ["x-a: bb"]},
         {"fields": ["x-a: bbc"]}),
        (rule(), {}, None),
    ]
    for given, fits, misses in cases:
        proxy.patch("w1", transformations=[given])
        for what, is_set in ((fits, True), (misses, False)):
            if what is None:
                continue
            api.told.clear()
            exchange(proxy, ROUTE + what.get("path", "/"), *what.get("fields", []),
                     method=what.get("method", "GET"))
            assert (fields_of(api.told[0], "x-set") == ["yes"]) == is_set, (given, what)


def test_a_rule_for_a_path_is_not_led_astray(proxy, api):
    proxy.patch("w1", transformations=[{
        "match": {"host": "api.example.com", "path": {"starts_with": "/v1/public/"}},
        "set": {"x-api-key": SECRET}}])
    for path in ("/v1/public/../admin", "/v1/public/%2e%2e/admin", "/v1/public/..%2fadmin",
                 "/v1/public/./x", "/v1/public/%2E./admin"):
        head, _ = exchange(proxy, ROUTE + path)
        assert status_of(head) == 400, path
    assert not api.told


def test_a_websocket_is_refused_or_carried_whole(proxy, api):
    head, _ = ask(proxy.connect(), request(
        ROUTE + "/", KEY, "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="))
    assert (status_of(head), reason_of(head)) == (501, "upgrade") and not api.told


def test_git_clones_and_pushes_with_only_a_placeholder_inside(relay, authority, world, tmp_path):
    make_repository(tmp_path / "thing.git", authority)
    kind = git_application(tmp_path, "Basic UkVBTC1TRUNSRVQ=")
    world.servers.behind[PUBLIC_TLS] = over_tls(authority.context("api.example.com", "github.com"),
                                                serve(kind))
    world.names.anything = PUBLIC_TLS
    settings = {"GIT_CONFIG_COUNT": "2",
                "GIT_CONFIG_KEY_0": f"url.{relay.url}/https/.insteadOf",
                "GIT_CONFIG_VALUE_0": "https://",
                "GIT_CONFIG_KEY_1": f"http.{relay.url}/.extraHeader",
                "GIT_CONFIG_VALUE_1": "Authorization: Basic UExBQ0VIT0xERVI="}
    clone = tmp_path / "clone"
    done = relay.run(authority, "git", "clone", "-q", "https://github.com/thing.git", str(clone),
                     **settings)
    assert done.returncode == 0, done.stderr
    assert (clone / "file").read_text() == "content\n"
    (clone / "new").write_text("more\n")
    for words in (("add", "."), ("-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "2"),
                  ("push", "-q", "origin", "main")):
        done = relay.run(authority, "git", "-C", str(clone), *words, **settings)
        assert done.returncode == 0, done.stderr
    assert set(kind.told) <= {"Basic UkVBTC1TRUNSRVQ=", None}
    assert "UkVBTC1TRUNSRVQ" not in "".join(
        path.read_text(errors="replace") for path in clone.rglob("*") if path.is_file())


def test_many_routes_at_once_do_not_mix(proxy, api):
    """Each guest's answer is its own, and each request has its own credential."""
    proxy.register("w2", {"address": "10.8.0.9"}, policy=POLICY, transformations=[
        {"match": {"host": "api.example.com",
                   "headers": [{"name": "x-api-key", "value_exact": "OTHER"}]},
         "set": {"x-api-key": "SECOND-REAL-VALUE"}}])
    faults = []

    def work(source, key, real):
        relay = Relay(proxy, source)
        client = http.client.HTTPConnection("127.0.0.1", relay.port, timeout=PATIENCE)
        for number in range(25):
            body = f"{source} {number}".encode()
            client.request("POST", f"{ROUTE}/", body, {"x-api-key": key, "x-real": real[::-1]})
            if json.load(client.getresponse())["digest"] != hashlib.sha256(body).hexdigest():
                faults.append(body)
    threads = [threading.Thread(target=work, args=one) for one in
               [(GUEST, PLACEHOLDER, SECRET), ("10.8.0.9", "OTHER", "SECOND-REAL-VALUE")] * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults and len(api.told) == 200
    for told in api.told:
        assert fields_of(told, "x-api-key") == [fields_of(told, "x-real")[0][::-1]]


def test_requests_to_hosts_that_are_refused_now_are_cut(proxy, api):
    """P108: an answer that is being streamed too."""
    stream = proxy.connect()
    head, _ = ask(stream, request(ROUTE + "/events", KEY))
    assert status_of(head) == 200
    proxy.patch("w1", policy={"mode": "deny-all"}, close_denied=True)
    stream.settimeout(PATIENCE)
    read_all(stream)
    api.gate.set()


def test_what_the_guest_abandons_is_abandoned_upstream(proxy, api, world):
    stream = proxy.connect()
    ask(stream, request(ROUTE + "/large", KEY))
    stream.close()
    seen = world.servers.seen[-1]
    await_true(lambda: seen.stream.fileno() == -1, "the end of the server's connection")


def test_pip_installs_through_a_tunnel(relay, authority, world, tmp_path):
    """A local index; the client is the real one."""
    name = "thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(tmp_path / name, "w") as wheel:
        wheel.writestr("thing.py", "x = 1\n")
        wheel.writestr("thing-1.0.dist-info/METADATA",
                       "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n")
        wheel.writestr("thing-1.0.dist-info/WHEEL",
                       "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("thing-1.0.dist-info/RECORD", "")
    kind = application()

    def index(self):
        self.answer(f'<a href="/files/{name}">{name}</a>'.encode(), Content_Type="text/html")

    def file(self):
        self.answer((tmp_path / name).read_bytes(), Content_Type="application/zip")
    kind.path_simple_thing = index
    setattr(kind, f"path_files_{name}".replace("-", "_"), file)
    world.servers.behind[PUBLIC_TLS] = over_tls(authority.context("pypi.cdn.example.net"),
                                                serve(kind))
    world.names.anything = PUBLIC_TLS
    words = ("/usr/bin/python3", "-m", "pip", "install", "-q", "--no-deps", "--retries", "0",
             "--target", str(tmp_path / "into"), "--cert", str(authority.bundle),
             "--disable-pip-version-check", "--isolated", "--no-cache-dir", "thing")
    done = relay.run(authority, *words, "--index-url", "https://pypi.cdn.example.net/simple/")
    if b"No module named pip" in done.stderr:
        pytest.skip("pip is not installed")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "into/thing.py").exists()
    done = relay.run(authority, *words, "--index-url", "https://pypi.evil.test/simple/")
    assert done.returncode != 0



def test_npm_installs_through_a_tunnel(relay, authority, world, tmp_path):
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    site = "https://npm.cdn.example.net"
    with tarfile.open(tmp_path / "thing.tgz", "w:gz") as archive:
        text = b'{"name": "thing", "version": "1.0.0"}'
        entry = tarfile.TarInfo("package/package.json")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text))
    data = (tmp_path / "thing.tgz").read_bytes()
    version = {"name": "thing", "version": "1.0.0", "dist": {
        "tarball": f"{site}/thing.tgz", "shasum": hashlib.sha1(data).hexdigest()}}
    kind = application()
    kind.path_thing = lambda self: self.answer(json.dumps({
        "name": "thing", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version},
    }).encode(), Content_Type="application/json")
    setattr(kind, "path_thing.tgz", lambda self: self.answer(data))
    world.servers.behind[PUBLIC_TLS] = over_tls(authority.context("npm.cdn.example.net"),
                                                serve(kind))
    world.names.anything = PUBLIC_TLS
    (tmp_path / "project").mkdir()
    words = ("npm", "install", "thing", "--prefix", str(tmp_path / "project"), "--no-audit",
             "--no-fund", "--no-update-notifier", "--cafile", str(authority.bundle), "--userconfig",
             str(tmp_path / "none"), "--fetch-retries", "0", "--cache", str(tmp_path / "cache"))
    done = relay.run(authority, *words, "--registry", f"{site}/")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "project/node_modules/thing/package.json").exists()
    done = relay.run(authority, *words, "--registry", "https://npm.evil.test/", "--force",
                     "--prefer-online")
    assert done.returncode != 0 and b"403" in done.stderr + done.stdout
