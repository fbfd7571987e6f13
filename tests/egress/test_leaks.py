"""Looks for each registered secret wherever one could come to light."""

import base64
import json
import os
import re
import secrets
import urllib.parse

import pytest
from authority import over_tls
from guest import PLACEHOLDER, POLICY, ask, connect_request, read_all, status_of
from servers import application, serve
from test_tunnels import open_tunnel
from world import GUEST, OTHER_GUEST, PATIENCE, PUBLIC_TLS, SILENT, await_true

REAL, USER = "s3cr3t-" + secrets.token_hex(16), "u5er-" + secrets.token_hex(8)
TOKEN = "t0ken-" + secrets.token_hex(16)
BASIC = base64.b64encode(f"{USER}:{REAL}".encode()).decode()
RULES = [
    {"match": {"host": "api.example.com",
               "headers": [{"name": "x-api-key", "value_exact": PLACEHOLDER}]},
     "set": {"x-api-key": REAL, "x-second": f"Bearer {REAL}"}},
    {"match": {"host": "github.com"}, "set": {"authorization": f"Basic {BASIC}"}},
]
KEY = f"x-api-key: {PLACEHOLDER}"


def forms(key):
    """Each secret as it is, and as it might be written."""
    for one in (REAL, USER, TOKEN, BASIC, key):
        yield one
        yield base64.b64encode(one.encode()).decode().rstrip("=")
        yield one.encode().hex()
        yield urllib.parse.quote(one, safe="")


def assert_no_secret(text, key, where):
    if isinstance(text, bytes):
        text = text.decode("latin-1")
    for form in forms(key):
        assert form not in text, f"{form} is in {where}"
        assert form not in urllib.parse.unquote(text), f"{form} is in {where}"


def requests():
    """What a guest may try, so that some of it comes back."""
    paths = ["echo-field", "echo-identity", "echo-bytes", "echo-gzip", "echo-deflate", "echo-br",
             "echo-zstd", "echo-two", "echo-strange", "echo-trailer", "echo-error", "echo-reason",
             "redirect", "close", "x"]
    for host in ("api.example.com", "github.com", "evil.test", "silent.cdn.example.net"):
        for path in paths if host in ("api.example.com", "github.com") else ["x"]:
            yield (f"GET /https/{host}/{path} HTTP/1.1\r\nHost: x\r\n{KEY}\r\n"
                   "Connection: close\r\n\r\n")
            yield (f"POST /https/{host}/{path} HTTP/1.0\r\nHost: x\r\n{KEY}\r\n"
                   "Content-Length: 2\r\n\r\nhi")
    yield f"TRACE /https/api.example.com/ HTTP/1.1\r\nHost: x\r\n{KEY}\r\n\r\n"
    yield f"GET /https/api.example.com/ HTTP/1.1\r\nHost: x\r\n{KEY}\r\nx: {'y' * 70000}\r\n\r\n"
    yield f"GET http://deb.example.org/ HTTP/1.1\r\nHost: deb.example.org\r\n{KEY}\r\n\r\n"
    yield f"GET /nonsense HTTP/1.1\r\nHost: x\r\n{KEY}\r\n\r\n"
    yield "CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n"


@pytest.fixture
def busy(start, world, authority):
    """A proxy that has had every kind of request, and all that it answered to guests."""
    proxy = start(environment={"SANDBOX_PROXY_TOKEN": TOKEN}, token=TOKEN,
                  timeouts={"connect": 300})
    key = proxy.register("w1", {"address": GUEST}, policy=POLICY, transformations=RULES)
    kind = application()
    kind.secret = REAL
    context = authority.context("api.example.com", "github.com")
    world.servers.behind[PUBLIC_TLS] = over_tls(context, serve(kind))
    world.names.set("api.example.com", PUBLIC_TLS)
    world.names.set("github.com", PUBLIC_TLS)
    world.names.set("silent.cdn.example.net", SILENT)
    answers = b""
    for text in requests():
        with proxy.connect() as stream:
            stream.settimeout(PATIENCE)
            try:
                stream.sendall(text.encode())
                stream.shutdown(1)
            except OSError:
                pass
            answers += read_all(stream)
    with proxy.connect(key="f" * 64) as stream:
        answers += ask(stream, connect_request("api.example.com"))[0].encode()
    assert any(REAL in json.dumps(told) for told in kind.told)
    assert any(BASIC in json.dumps(told) for told in kind.told)
    return proxy, key, answers


def test_guests_never_get_a_secret(busy):
    _, key, answers = busy
    assert answers.count(b"HTTP/1.1 ") > 40
    assert_no_secret(answers, key, "the answers to guests")


def test_logs_metrics_and_the_admin_interface_tell_no_secret(busy):
    proxy, key, _ = busy
    for path in ("/metrics", "/v1/log", "/v1/log?workspace=w1", "/v1/workspaces",
                 "/v1/workspaces/w1", "/v1/version"):
        answer = proxy.admin("GET", path)
        assert answer.status == 200
        assert_no_secret(answer.text + str(answer.headers), key, path)
    assert_no_secret(proxy.log(), key, "the log")
    assert_no_secret(proxy.output(), key, "the output")
    assert PLACEHOLDER not in proxy.log()


def test_errors_of_the_admin_interface_tell_no_secret(busy):
    proxy, key, _ = busy
    for rules in ([{"match": {"host": "a.test"}, "set": {"x": f"{REAL}\r\nX: 1"}}],
                  [{"match": {"host": "a.test"}, "set": {f"x {REAL}": "v"}}],
                  [{"match": {"host": "*"}, "set": {"x": REAL}}],
                  [{"match": {"host": "a.test"}, "set": {"host": REAL}}], [REAL], REAL,
                  [{"match": {"host": "a.test"}, "set": REAL}],
                  [{"match": {"host": "a.test"}, "set": {"x": [REAL]}}]):
        answer = proxy.admin("PATCH", "/v1/workspaces/w1", {"transformations": rules})
        assert answer.status == 400
        if not (isinstance(rules[0], dict) and f"x {REAL}" in rules[0].get("set", ())):
            assert_no_secret(answer.text, key, f"the error for {rules}")
    answer = proxy.admin("PUT", "/v1/workspaces/w1", f'{{"key": "{REAL}" nonsense'.encode())
    assert answer.status == 400
    assert_no_secret(answer.text + proxy.log(), key, "the error for broken JSON")
    wrong = proxy.admin("GET", "/v1/workspaces", headers={"Authorization": f"Bearer {REAL}"})
    assert wrong.status == 401
    assert_no_secret(wrong.text + proxy.log(), key, "the error for a wrong token")


def test_the_process_shows_no_secret(busy):
    proxy, key, _ = busy
    folder = f"/proc/{proxy.process.pid}"
    for name in ("cmdline", "environ", "status", "maps"):
        with open(f"{folder}/{name}", "rb") as file:
            assert_no_secret(file.read(), key, name)
    for one in os.listdir(f"{folder}/fd"):
        try:
            assert_no_secret(os.readlink(f"{folder}/fd/{one}"), key, "the descriptors")
        except OSError:
            continue
    with open(f"{folder}/limits", encoding="ascii") as limits:
        assert re.search(r"Max core file size +0 +0 ", limits.read())
    # What holds secrets is locked in memory, so that none comes into the swap. Sanitizers take
    # mlock() away.
    with open(f"{folder}/status", encoding="ascii") as status:
        locked = int(re.search(r"VmLck:\s+(\d+)", status.read()).group(1))
    assert locked > 0 or os.environ.get("SANDBOX_TEST_SANITIZED")


def memory_of(process):
    """All of its memory that can be read."""
    with open(f"/proc/{process.pid}/maps", encoding="ascii") as maps, \
            open(f"/proc/{process.pid}/mem", "rb", 0) as memory:
        for line in maps:
            begin, end, mode = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+)", line).groups()
            if "w" not in mode or "[v" in line:
                continue
            place, left = int(begin, 16), int(end, 16) - int(begin, 16)
            if left > 1 << 28:
                continue  # a sanitizer's shadow
            try:
                memory.seek(place)
                yield memory.read(left)
            except OSError:
                continue


def count_in_memory(process, *words):
    return sum(piece.count(word.encode()) for piece in memory_of(process) for word in words)


def test_what_is_forgotten_is_wiped(busy):
    """After the registration is gone its secrets are in no writable page of the process."""
    if os.environ.get("SANDBOX_TEST_SANITIZED"):
        pytest.skip("a sanitizer keeps freed memory")
    proxy, key, _ = busy
    assert count_in_memory(proxy.process, REAL) > 0
    proxy.admin("DELETE", "/v1/workspaces/w1")
    # What still has a connection to a server holds what it sent until that has ended.
    await_true(lambda: count_in_memory(proxy.process, REAL, BASIC, key) == 0, "the last copy's end")


def test_a_key_that_is_replaced_is_wiped(start):
    if os.environ.get("SANDBOX_TEST_SANITIZED"):
        pytest.skip("a sanitizer keeps freed memory")
    proxy = start()
    old = proxy.register("w1", {"address": OTHER_GUEST}, policy=POLICY)
    with open_tunnel(proxy, OTHER_GUEST):
        pass
    new = proxy.register("w1", {"address": OTHER_GUEST}, policy=POLICY)
    assert count_in_memory(proxy.process, old) == 0
    with proxy.connect(OTHER_GUEST, old) as stream:
        assert status_of(ask(stream, connect_request("api.example.com"))[0]) == 403
    with proxy.connect(OTHER_GUEST, new) as stream:
        assert status_of(ask(stream, connect_request("api.example.com"))[0]) == 200
