"""The admin interface: who may do what, what takes effect when, and what is never told."""

import http.client
import json
import secrets
import socket
import stat
import threading

import pytest
from guest import (PLACEHOLDER, POLICY, SECRET, ask, connect_request, is_closed, reason_of,
                   status_of)
from test_tunnels import HELLO, open_tunnel
from world import EXTERNAL, GUEST, OTHER_GUEST, PATIENCE, PROXY, await_true

W1 = "/v1/workspaces/w1"


def verdict(proxy, host, source=GUEST):
    with proxy.connect(source) as stream:
        return status_of(ask(stream, connect_request(host))[0])


def test_the_version_is_told_and_checked(start):
    proxy = start()
    answer = proxy.admin("GET", "/v1/version")
    assert answer.json["protocol"] == 1 and answer.headers["Sandbox-Protocol"] == "1"
    assert proxy.admin("GET", "/v1/version", headers={"Sandbox-Protocol": "1"}).status == 200
    for number in ("2", "", "1.0", "01"):
        answer = proxy.admin("GET", "/v1/version", headers={"Sandbox-Protocol": number})
        assert (answer.status, answer.json["error"]["reason"]) == (400, "protocol"), number
        assert answer.headers["Sandbox-Protocol"] == "1"


def test_the_socket_is_its_owners_alone(start):
    proxy = start()
    assert stat.S_IMODE(proxy.socket.stat().st_mode) == 0o600
    proxy.stop()
    assert not proxy.socket.exists()


def test_a_workspace_comes_and_goes(proxy):
    told = proxy.admin("GET", W1).json
    assert told["id"] == "w1" and told["source"] == {"address": GUEST}
    assert told["policy"]["allow"] == POLICY["allow"] and told["policy"]["http"] == POLICY["http"]
    assert [one["host"] for one in told["transformations"]] == ["api.example.com", "github.com"]
    assert [one["id"] for one in proxy.admin("GET", "/v1/workspaces").json["workspaces"]] == ["w1"]
    assert proxy.admin("DELETE", W1).status == 204
    assert proxy.admin("GET", W1).status == 404 and proxy.admin("DELETE", W1).status == 404
    stream = proxy.connect()
    assert reason_of(ask(stream, connect_request("api.example.com"))[0]) == "unknown-source"


def test_forgetting_closes_what_is_open(proxy):
    tunnel = open_tunnel(proxy)
    proxy.admin("DELETE", W1)
    assert is_closed(tunnel)


def test_a_recycled_address_inherits_nothing(proxy, world, api):
    """The key, the policy, the credentials and the connections of the former one are gone."""
    old_key, stream = proxy.keys[GUEST], proxy.connect()
    assert status_of(ask(stream, connect_request("api.example.com"))[0]) == 200
    proxy.register("w2", {"address": GUEST},
                   policy={"mode": "custom", "allow": ["api.example.com"]})
    assert is_closed(stream)
    assert proxy.admin("GET", W1).status == 404
    with proxy.connect(key=old_key) as stream:
        assert reason_of(ask(stream, connect_request("api.example.com"))[0]) == "wrong-key"
    assert verdict(proxy, "github.com") == 403
    request = f"GET /https/api.example.com/ HTTP/1.1\r\nHost: x\r\nx-api-key: {PLACEHOLDER}\r\n\r\n"
    with proxy.connect() as stream:
        assert status_of(ask(stream, request.encode())[0]) == 200
    assert SECRET not in json.dumps(api.told)


def test_the_same_workspace_may_move(proxy):
    old_key = proxy.keys[GUEST]
    proxy.register("w1", {"address": OTHER_GUEST}, policy=POLICY)
    assert verdict(proxy, "api.example.com", OTHER_GUEST) == 200
    with proxy.connect(GUEST, old_key) as stream:
        assert reason_of(ask(stream, connect_request("api.example.com"))[0]) == "unknown-source"


def test_other_spellings_of_an_address_are_the_same_source(start):
    proxy = start(listen="[fd08::2]:3128")
    proxy.register("w1", {"address": "fd08:0:0::0001"}, policy=POLICY)
    proxy.register("w2", {"address": "FD08::1"}, policy=POLICY)
    assert [one["id"] for one in proxy.admin("GET", "/v1/workspaces").json["workspaces"]] == ["w2"]


def test_a_policy_takes_effect_at_once(proxy):
    """Nothing that comes after the answer is judged by the old one."""
    for _ in range(50):
        proxy.patch("w1", policy={"mode": "deny-all"})
        assert verdict(proxy, "api.example.com") == 403
        proxy.patch("w1", policy=POLICY)
        assert verdict(proxy, "api.example.com") == 200


def test_what_is_open_goes_on_unless_it_shall_be_closed(proxy, world):
    """P108."""
    proxy.register("w1", {"address": GUEST}, policy=POLICY, limits={"connections": 200})
    tunnels = [open_tunnel(proxy) for _ in range(50)]
    others = [open_tunnel(proxy, host="github.com") for _ in range(50)]
    narrow = {**POLICY, "allow": ["github.com"]}
    proxy.patch("w1", policy=narrow)
    assert verdict(proxy, "api.example.com") == 403
    for tunnel in tunnels:
        tunnel.sendall(b"still there")
    for seen in world.servers.seen[:50]:
        await_true(lambda seen=seen: seen.data.endswith(b"still there"), "the bytes of a tunnel")
    proxy.patch("w1", policy=narrow, close_denied=True)
    for tunnel in tunnels:
        assert is_closed(tunnel)
    for tunnel in others:
        tunnel.setblocking(False)
        with pytest.raises(BlockingIOError):
            tunnel.recv(1)
        tunnel.close()


def test_no_request_passes_outside_the_policy_while_it_changes(proxy, world):
    """P166: the host of each period is judged by that period's policy, under load."""
    one, two = ({**POLICY, "allow": [host]} for host in ("a.test", "b.test"))
    proxy.register("w1", {"address": GUEST}, policy=one, limits={"rate": 100_000,
                                                                   "connections": 1000})
    ending, wrong, count = threading.Event(), [], [0]

    def hostile():
        while not ending.is_set():
            with proxy.connect() as stream:
                head, _ = ask(stream, connect_request("never.test"))
                count[0] += 1
                if status_of(head) != 403:
                    wrong.append(head)
    threads = [threading.Thread(target=hostile) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(250):
        proxy.patch("w1", policy=(one, two)[number % 2])
        for host, wanted in (("a.test", 200), ("b.test", 403)):
            found = verdict(proxy, host)
            assert found == (wanted if number % 2 == 0 else 603 - wanted), (number, host)
    ending.set()
    for thread in threads:
        thread.join()
    assert not wrong and count[0] > 100
    assert not world.attempts()


def test_adding_keeps_what_there_was(proxy, api):
    proxy.patch("w1", add={"allow": ["new.test"], "http": ["plain.test"], "transformations": [
        {"match": {"host": "new.test"}, "set": {"authorization": "Bearer ADDED-REAL-VALUE"}}]})
    told = proxy.admin("GET", W1).json
    assert told["policy"]["allow"] == [*POLICY["allow"], "new.test"]
    assert told["policy"]["http"] == [*POLICY["http"], "plain.test"]
    assert [one["host"] for one in told["transformations"]][-1] == "new.test"
    assert len(told["transformations"]) == 3
    proxy.patch("w1", transformations=[])
    assert proxy.admin("GET", W1).json["transformations"] == []


WRONG = {
    "no source": {"source": None},
    "an empty source": {"source": {}},
    "two sources": {"source": {"address": GUEST, "socket": "/tmp/x"}},
    "no address": {"source": {"address": "example.com"}},
    "a network": {"source": {"address": "10.0.0.0/8"}},
    "a short key": {"key": "abc"},
    "an upper case key": {"key": "A" * 64},
    "a key with a NUL": {"key": "a" * 63 + "\0"},
    "another mode": {"policy": {"mode": "open"}},
    "a pattern for all": {"policy": {"mode": "custom", "allow": ["*"]}},
    "a pattern in the middle": {"policy": {"mode": "custom", "allow": ["a.*.test"]}},
    "half a label": {"policy": {"mode": "custom", "allow": ["a*.test"]}},
    "an address": {"policy": {"mode": "custom", "allow": ["93.184.216.34"]}},
    "a URL": {"policy": {"mode": "custom", "allow": ["https://a.test/"]}},
    "a port": {"policy": {"mode": "custom", "allow": ["a.test:443"]}},
    "a number": {"policy": {"mode": "custom", "allow": [7]}},
    "no list": {"policy": {"mode": "custom", "allow": "a.test"}},
    "an unknown member": {"polcy": {"mode": "deny-all"}},
    "an unknown member inside": {"policy": {"mode": "custom", "alow": []}},
    "another ech": {"policy": {"mode": "custom", "ech": "allow"}},
    "negative limits": {"limits": {"connections": -1}},
    "endless limits": {"limits": {"connections": 1e12}},
    "half a limit": {"limits": {"rate": 0.5}},
    "a rule without a host": {"transformations": [{"match": {}, "set": {"a": "b"}}]},
    "a rule without headers": {"transformations": [{"match": {"host": "a.test"}, "set": {}}]},
    "a rule for Host": {"transformations": [{"match": {"host": "a.test"}, "set": {"Host": "b"}}]},
    "a broken expression": {"transformations": [
        {"match": {"host": "a.test", "path": {"regex": "("}}, "set": {"a": "b"}}]},
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_refused_and_changes_nothing(proxy, case):
    before = proxy.admin("GET", W1).text
    body = {"source": {"address": GUEST}, "key": secrets.token_hex(32), "policy": POLICY,
            **WRONG[case]}
    answer = proxy.admin("PUT", W1, {name: value for name, value in body.items()
                                     if value is not None})
    assert answer.status == 400 and answer.json["error"]["message"], answer.text
    assert proxy.admin("GET", W1).text == before
    assert verdict(proxy, "api.example.com") == 200


def test_ranges_are_refused_by_name(proxy):
    """A policy that seems to allow ranges and does not would be worse than none."""
    answer = proxy.admin("PATCH", W1, {"policy": {**POLICY, "cidrs": ["240.0.0.0/4"]}})
    assert (answer.status, answer.json["error"]["reason"]) == (400, "cidrs-unsupported")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"{}{}", b'{"a":1}', b"\xff\xfe",
                                  b'{"policy":{"mode":"deny-all"},"policy":{"mode":"allow-all"}}',
                                  b"[" * 100_000])
def test_bodies_that_are_no_json_of_ours_are_refused(proxy, body):
    for method in ("PUT", "PATCH"):
        answer = proxy.admin(method, W1, body)
        assert answer.status == 400, answer.text
    assert verdict(proxy, "evil.test") == 403


def test_bodies_that_are_too_large_are_refused(proxy):
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(str(proxy.socket))
        head, body = ask(stream, b"PATCH /v1/workspaces/w1 HTTP/1.1\r\nHost: x\r\n"
                                 b"Content-Length: 2000000\r\n\r\n" + b"{" * 1000)
    assert status_of(head) == 413 and b"too-large" in body


@pytest.mark.parametrize("method, path, status", [
    ("GET", "/", 404), ("GET", "/v2/version", 404), ("GET", "/v1/workspaces/none", 404),
    ("PATCH", "/v1/workspaces/none", 404), ("POST", "/v1/workspaces", 405),
    ("DELETE", "/v1/version", 405), ("POST", W1, 405), ("PUT", "/metrics", 405),
    ("GET", "/v1/workspaces/..%2f..", 400), ("GET", "/v1/log?workspace=none", 404)])
def test_other_requests_have_their_answers(proxy, method, path, status):
    answer = proxy.admin(method, path, {} if method in ("PUT", "PATCH", "POST") else None)
    assert answer.status == status, answer.text
    assert answer.json["error"]["reason"] and answer.json["error"]["message"]


@pytest.mark.parametrize("name", ["", "a/b", "a b", "x" * 129, "%00", "é"])
def test_names_of_workspaces_are_plain(start, name):
    proxy = start()
    path = "/v1/workspaces/" + name.replace(" ", "%20").replace("é", "%c3%a9")
    body = {"source": {"address": GUEST}, "key": "a" * 64}
    assert proxy.admin("PUT", path, body).status in (400, 404, 405)
    assert proxy.admin("GET", "/v1/workspaces").json == {"workspaces": []}


def test_over_tcp_only_the_token_opens(start, tmp_path):
    token = "T0KEN-" + secrets.token_hex(16)
    (tmp_path / "token").write_text(token + "\n")
    proxy = start(arguments=("--admin", f"{PROXY}:3129", "--admin-token-file",
                             str(tmp_path / "token")), administer=(PROXY, 3129), token=token)
    for given, status in ((f"Bearer {token}", 200), (None, 401), ("Bearer ", 401),
                          (f"Bearer {token}x", 401), (f"Bearer {token[:-1]}", 401),
                          (f"Basic {token}", 401), (f"Bearer {'x' * len(token)}", 401)):
        client = http.client.HTTPConnection(PROXY, 3129, timeout=PATIENCE)
        client.request("GET", "/v1/workspaces", headers={"Authorization": given} if given else {})
        answer = client.getresponse()
        assert answer.status == status, given
        assert token not in answer.read().decode()
    assert token not in proxy.log() + proxy.output()


def test_guests_cannot_reach_the_admin_interface_through_the_proxy(start, world, tmp_path):
    (tmp_path / "token").write_text("x" * 32)
    proxy = start(arguments=("--admin", f"{PROXY}:3129", "--admin-token-file",
                             str(tmp_path / "token")), administer=(PROXY, 3129), token="x" * 32)
    proxy.register("w1", {"address": GUEST}, policy={**POLICY, "http": ["self.test"]})
    for address in (PROXY, EXTERNAL, "127.0.0.1", "::1", "fd08::2"):
        world.names.set("self.test", address)
        with proxy.connect() as stream:
            head, _ = ask(stream, b"GET http://self.test/ HTTP/1.1\r\nHost: self.test\r\n\r\n")
        assert (status_of(head), reason_of(head)) == (403, "private-address"), address
    for path in ("/v1/version", "/metrics", "/v1/workspaces"):
        with proxy.connect() as stream:
            head, _ = ask(stream, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert status_of(head) == 400
    assert not world.attempts()


def test_a_socket_that_is_somebody_elses_is_not_taken(start, tmp_path):
    proxy, path = start(), tmp_path / "taken"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(1)
    answer = proxy.admin("PUT", W1, {"source": {"socket": str(path)}, "key": "a" * 64})
    assert (answer.status, answer.json["error"]["reason"]) == (409, "in-use")
    (tmp_path / "file").write_text("precious")
    answer = proxy.admin("PUT", W1, {"source": {"socket": str(tmp_path / "file")}, "key": "a" * 64})
    assert answer.status in (400, 409) and (tmp_path / "file").read_text() == "precious"
    for wrong in ("relative", "/", "/" + "x" * 200, str(tmp_path / "no/where")):
        answer = proxy.admin("PUT", W1, {"source": {"socket": wrong}, "key": "a" * 64})
        assert answer.status in (400, 409), wrong


def test_refusals_are_counted_and_kept_by_workspace(proxy):
    proxy.register("w2", {"address": OTHER_GUEST}, policy={"mode": "deny-all"})
    for number in range(80):
        verdict(proxy, f"h{number}.test", OTHER_GUEST)
    verdict(proxy, "evil.test")
    verdict(proxy, "api.example.com", "10.8.0.77")
    mine = proxy.refusals("w1")["refusals"]
    assert [(one["host"], one["reason"], one["kind"], one["port"]) for one in mine] == [
        ("evil.test", "host-not-allowed", "connect", 443)]
    theirs = proxy.refusals("w2")["refusals"]
    assert [one["host"] for one in theirs] == [f"h{number}.test" for number in range(16, 80)]
    everybody = proxy.admin("GET", "/v1/log").json["refusals"]
    assert everybody[-1]["workspace"] == "" and everybody[-1]["reason"] == "unknown-source"
    counts = proxy.metrics()
    assert counts['sandbox_egress_refused_total{reason="host-not-allowed"}'] == 81
    assert counts['sandbox_egress_refused_total{reason="unknown-source"}'] == 1
    logged = [json.loads(line) for line in proxy.log().splitlines()]
    assert {one["event"] for one in logged} >= {"started", "registered", "refused"}
    assert sum(one["event"] == "refused" and one["workspace"] == "w2" for one in logged) <= 80


def test_metrics_count_what_happens(proxy, api, world):
    stream = proxy.connect()
    ask(stream, connect_request("api.example.com"))
    stream.sendall(HELLO)
    await_true(lambda: proxy.metrics()["sandbox_egress_tunnels"] == 1, "a tunnel counted")
    request = f"GET /https/api.example.com/ HTTP/1.1\r\nHost: x\r\nx-api-key: {PLACEHOLDER}\r\n\r\n"
    with proxy.connect() as other:
        ask(other, request.encode())
    counts = proxy.metrics()
    assert counts["sandbox_egress_credentials_total"] == 1
    assert counts['sandbox_egress_requests_total{kind="connect"}'] == 1
    assert counts['sandbox_egress_requests_total{kind="route"}'] == 1
    assert counts["sandbox_egress_workspaces"] == 1
    stream.close()
    await_true(lambda: proxy.metrics()["sandbox_egress_connections"] == 0, "all of it closed")
    assert proxy.metrics()['sandbox_egress_bytes_total{direction="up"}'] >= len(HELLO)


def test_metrics_are_prometheus_text(proxy):
    answer = proxy.admin("GET", "/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain")
    for line in answer.text.splitlines():
        assert line.startswith(("# HELP ", "# TYPE ", "sandbox_egress_")), line


def test_many_workspaces_are_told_apart(start, world):
    proxy = start()
    for number in range(1000):
        proxy.register(f"w{number}", {"address": f"10.9.{number // 250}.{number % 250}"},
                       policy={"mode": "custom", "allow": [f"h{number}.test"]})
    proxy.register("me", {"address": GUEST}, policy={"mode": "custom", "allow": ["mine.test"]})
    assert verdict(proxy, "mine.test") == 200 and verdict(proxy, "h7.test") == 403
    assert len(proxy.admin("GET", "/v1/workspaces").json["workspaces"]) == 1001
    for number in range(1000):
        assert proxy.admin("DELETE", f"/v1/workspaces/w{number}").status == 204


def check(proxy, *texts, path=f"{W1}/check"):
    return proxy.admin("POST", path, {"texts": texts})


def test_texts_with_a_credential_are_found(proxy):
    """As a command would carry it: plain, within other text, encoded; and whose it is."""
    assert check(proxy).json == check(proxy, "", "ls -l", PLACEHOLDER).json == {
        "hosts": [], "secret": False}
    for text in (SECRET, f"--key={SECRET}x", "UkVBTC1TRUNSRVQtOTFhYg==", SECRET.encode().hex(),
                 f"\u00e9{SECRET}\u00ff"):
        answer = check(proxy, "echo", text)
        assert answer.json["secret"] is True and answer.json["hosts"][0] == "api.example.com", text
    assert check(proxy, "Basic UkVBTC1TRUNSRVQ=").json == {"hosts": ["github.com"], "secret": True}
    assert SECRET not in proxy.log()
    proxy.patch("w1", transformations=[])
    assert check(proxy, SECRET).json["secret"] is False


def test_a_check_has_its_own_rules(proxy):
    assert check(proxy, "x", path="/v1/workspaces/none/check").status == 404
    assert proxy.admin("GET", f"{W1}/check").status == 405
    for body in ({}, {"texts": "x"}, {"texts": [1]}, {"texts": [], "more": 1}, b"{", []):
        answer = proxy.admin("POST", f"{W1}/check", body)
        assert (answer.status, answer.json["error"]["reason"]) == (400, "bad-request"), body
    assert check(proxy, "y" * (3 << 20), SECRET).json["secret"] is True
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(str(proxy.socket))
        stream.sendall(f"POST {W1}/check HTTP/1.1\r\nHost: x\r\nContent-Length: {9 << 20}\r\n\r\n"
                       .encode())
        assert b" 413 " in stream.makefile("rb").readline()
    assert proxy.admin("POST", W1, {"texts": []}).status == 405


def test_a_new_key_is_a_new_run(proxy, world):
    """What the former one opened ends; policy and credentials stay."""
    old, new = proxy.keys[GUEST], secrets.token_hex(32)
    tunnel = open_tunnel(proxy)
    assert proxy.admin("PATCH", W1, {"key": "short"}).status == 400
    proxy.patch("w1", key=new)
    assert is_closed(tunnel)
    with proxy.connect(key=old) as stream:
        assert reason_of(ask(stream, connect_request("api.example.com"))[0]) == "wrong-key"
    proxy.keys[GUEST] = new
    assert verdict(proxy, "api.example.com") == 200
    assert len(proxy.admin("GET", W1).json["transformations"]) == 2
