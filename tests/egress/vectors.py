"""Runs a vector of the table against a proxy that runs, whichever it is, and says what was wrong.

A fault is (kind, sentence): "open" where something passed that must not, or was changed for the
worse; "closed" where something that must pass did not; "words" where the verdict was right and the
status or the form was not.
"""

import contextlib
import gzip
import json
import pathlib
import re
import socket
import time

from authority import over_tls
from world import ALERT, EXTERNAL, PUBLIC_TLS, SILENT, STRANGER, answer_ok, answer_with

TABLE = pathlib.Path(__file__).resolve().parents[1] / "data" / "egress-vectors.json"
SECRET = "REAL-SECRET-91ab"
ANSWER_SECONDS = 4    # for an answer that must come
DEADLINE_SECONDS = 14  # for a tunnel that must be closed by a clock

# Where the table calls two verdicts safe, the peers may choose the other one.
EITHER = {"connect-port-leading-zeros", "connect-host-header-mismatch", "http-cl-list-same",
          "http-bare-lf", "tls-sni-trailing-dot", "tls-frag-one-byte-records"}


def load():
    return json.loads(TABLE.read_text(encoding="utf-8"))


def client_hello(name, rest=""):
    """The table's well-formed one, for another name."""
    base = bytes.fromhex(load()["clienthello_base"]["allowed"])
    place = base.index(b"api.example.com") - 9  # the extension's type
    host = name.encode("ascii")
    entry = b"\x00" + len(host).to_bytes(2, "big") + host
    extension = (b"\x00\x00" + (len(entry) + 2).to_bytes(2, "big")
                 + len(entry).to_bytes(2, "big") + entry)
    others = base[place + 24:] + bytes.fromhex(rest)
    before = base[9:place - 2]
    body = before + (len(extension) + len(others)).to_bytes(2, "big") + extension + others
    handshake = b"\x01" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x01" + len(handshake).to_bytes(2, "big") + handshake


class Talk:
    """A guest's connection, and all that came back on it."""

    def __init__(self, stream):
        self.stream, self.data, self.ended = stream, bytearray(), False

    def send(self, data):
        with contextlib.suppress(OSError):
            self.stream.sendall(data)

    def read_until(self, is_enough, seconds):
        end = time.monotonic() + seconds
        while not self.ended and not is_enough(self.data):
            left = end - time.monotonic()
            if left <= 0:
                return False
            self.stream.settimeout(left)
            try:
                piece = self.stream.recv(1 << 16)
            except TimeoutError:
                return False
            except OSError:
                piece = b""
            self.data += piece
            self.ended = not piece
        return bool(is_enough(self.data))

    def read_head(self, seconds=ANSWER_SECONDS):
        """The status, 0 where it was closed without one, None where nothing came."""
        self.read_until(lambda data: b"\r\n\r\n" in data, seconds)
        match = re.match(rb"HTTP/1\.\d (\d{3})", self.data)
        if match and match.group(1) == b"100":
            del self.data[:self.data.index(b"\r\n\r\n") + 4]
            return self.read_head(seconds)
        return int(match.group(1)) if match else 0 if self.ended else None

    def read_rest(self, seconds=ANSWER_SECONDS):
        """All of the answer; whether it is whole."""
        head, _, body = bytes(self.data).partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        if re.search(rb"(?i)\r\ntransfer-encoding: *chunked", head):
            return self.read_until(lambda data: data.endswith(b"0\r\n\r\n"), seconds)
        if length:
            wanted = len(head) + 4 + int(length.group(1))
            return self.read_until(lambda data: len(data) >= wanted, seconds)
        self.read_until(lambda data: False, seconds)
        return self.ended

    def is_closed(self, seconds=ANSWER_SECONDS):
        self.read_until(lambda data: False, seconds)
        return self.ended

    def close(self):
        self.stream.close()


class Run:
    """One vector, one target."""

    def __init__(self, vector, target):
        self.vector, self.target, self.world = vector, target, target.world
        self.given, self.expected = vector["input"], vector["expected"]
        self.faults = []

    def fault(self, kind, sentence):
        self.faults.append((kind, sentence))

    def run(self):
        self.world.reset()
        getattr(self, f"run_{self.given['kind']}")()
        if not self.target.is_alive():
            self.fault("open", "the program ended")
        return self.faults

    def verdicts(self):
        verdict = self.expected["verdict"]
        return verdict if isinstance(verdict, list) else [verdict]

    def request_bytes(self):
        if "bytes" in self.given:
            return self.given["bytes"].encode("latin-1")
        template = self.given["bytes_template"]
        template = template.replace("<A*70000>", "A" * 70000)
        return template.replace("<X-i: 1 *1000>", "".join(f"X-{i}: 1\r\n" for i in range(1000))) \
            .encode("latin-1")

    def serve_tls(self, serve):
        context = self.target.authority.context("api.example.com", "github.com")
        self.world.servers.behind[PUBLIC_TLS] = over_tls(context, serve)
        for name in ("api.example.com", "github.com"):
            self.world.names.set(name, PUBLIC_TLS)

    def run_http_request(self):
        data = self.request_bytes()
        is_connect = data.upper().startswith(b"CONNECT")
        hello = b""
        if "followed_by" in self.given:
            hello = client_hello("api.example.com")
        if not is_connect:
            self.serve_tls(answer_ok)
        talk = Talk(self.target.connect())
        talk.send(data + hello)
        self.judge(talk, is_connect, data, hello)
        talk.close()

    def judge(self, talk, is_connect, data, hello):
        status = talk.read_head()
        if status is None:
            self.fault("closed" if "allow" in self.verdicts() else "words", "no answer came")
        elif status == 200 or (status is not None and 0 < status < 400):
            if set(self.verdicts()) & {"allow", "sanitize", "policy"}:
                self.check_passed(talk, is_connect, data, hello)
            else:
                self.check_alternative(talk, is_connect, data)
        elif set(self.verdicts()) <= {"allow", "sanitize"}:
            self.fault("closed", f"answered {status}, must pass")
        else:
            self.check_refused(talk, status)
        self.check_upstream_words()

    def check_alternative(self, talk, is_connect, data):
        if "when" in self.expected:
            # A rule with a path has it refused; this policy has none, so it goes on as it is.
            path = data.split()[1].decode().partition("/https/api.example.com")[2]
            if not any(path.encode() in seen.data for seen in self.world.servers.seen):
                self.fault("open", "the path was changed")
            return
        if self.vector["name"] in EITHER and self.target.knows_not:
            self.check_passed(talk, is_connect, data, b"")
            return
        # Squid answers so, to tell of its refusal inside TLS of its own.
        if is_connect:
            talk.send(client_hello("api.example.com"))
            talk.read_until(lambda data: data.endswith(ALERT), 1)
        is_open = not is_connect or self.world.attempts() or self.world.servers.seen
        self.fault("open" if is_open else "words", "answered 200, must be refused")

    def check_refused(self, talk, status):
        wanted = self.expected.get("status")
        fitting = wanted if isinstance(wanted, list) else [wanted]
        if status == 0:
            self.fault("words", "closed without an answer")
        elif wanted is not None and status not in fitting:
            self.fault("words", f"answered {status}, the table says {wanted}")
        if self.expected.get("close") and not talk.is_closed():
            self.fault("words", "the connection stays open")
        attempts = self.world.attempts()
        if self.expected.get("upstream_connection") is False and attempts:
            self.fault("open", f"dialled {attempts[0][1:]}")
        if self.vector["category"] in ("host", "ip-literal") and self.world.names.asked:
            self.fault("open", f"asked for {self.world.names.asked[0][0]!r}")
        for answer in self.given.get("answers", []):
            if answer.encode() in talk.data:
                self.fault("open", "the answer tells the address")

    def check_passed(self, talk, is_connect, data, hello):
        if is_connect:
            target = data.split()[1].decode("latin-1").rsplit(":", 1)[0].lower().rstrip(".")
            self.check_tunnel(talk, hello or client_hello(target), is_sent=bool(hello))
            return
        if not talk.read_rest():
            self.fault("words", "the answer is not whole")
        seen = self.world.servers.seen
        if not seen:
            self.fault("closed", "nothing came upstream")
            return
        head = bytes(seen[0].data).decode("latin-1")
        if "upstream" in self.expected:
            line, host = self.expected["upstream"].split("\r\n")[:2]
            if not head.startswith(line + "\r\n") or host.lower() not in head.lower():
                self.fault("open", f"upstream got {head[:60]!r}")
        for words in self.expected.get("upstream_contains", []):
            if words.lower() not in head.lower():
                self.fault("closed", f"upstream did not get {words!r}")
        name = self.expected.get("upstream_tls_host")
        if name and getattr(seen[0], "name", None) != name:
            self.fault("open", f"TLS asked for {getattr(seen[0], 'name', None)!r}")

    def check_tunnel(self, talk, hello, is_sent=False):
        """The hello arrives whole, an answer returns, and only the right address was dialled."""
        begun = len(talk.data) if not is_sent else bytes(talk.data).index(b"\r\n\r\n") + 4
        if not is_sent:
            talk.send(hello)
        talk.read_until(lambda data: data[begun:] == ALERT, ANSWER_SECONDS)
        seen = self.world.servers.seen
        if bytes(talk.data[begun:]) != ALERT or not seen:
            self.fault("closed", "the tunnel passed nothing")
            return
        if not self.has_come(hello):
            self.fault("open", "upstream did not get what the guest sent")
        dialled = {address for _, address, _ in self.world.attempts()}
        wanted = self.expected.get("connect_to", "").rpartition(":")[0]
        if self.given["kind"] == "resolve" and dialled != {wanted.strip("[]")}:
            self.fault("open", f"dialled {dialled}")

    def check_upstream_words(self):
        for seen in self.world.servers.seen:
            text = bytes(seen.data).decode("latin-1").lower()
            fields = [line.partition(":")[0] for line in text.split("\r\n")[1:]]
            for words in self.expected.get("upstream_must_not_contain", []):
                plain = words.lower().rstrip(":")
                # A word with a digit or a space is a value, any other a field's name.
                is_there = plain in text if re.search(r"[\d ]", plain) else plain in fields
                if is_there:
                    self.fault("open", f"upstream got {words!r}")

    def run_resolve(self):
        self.target.forget_names()
        host = self.given["request"].split()[1].rsplit(":", 1)[0]
        answers = [EXTERNAL if one == "<proxy external IP>" else one
                   for one in self.given["answers"]]
        self.world.names.set(host, *answers, then=self.given.get("second_answers", ()))
        data = self.given["request"].encode()
        talk = Talk(self.target.connect())
        talk.send(data)
        self.judge(talk, True, data, b"")
        talk.close()
        asked = self.world.names.asked
        if "lookups" in self.expected and any(asked.count(one) > 1 for one in asked):
            self.fault("open", "asked for the name twice")

    def run_clienthello(self):
        talk = Talk(self.target.connect())
        host = self.given["connect"]
        talk.send(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        if (status := talk.read_head()) != 200:
            self.fault("closed", f"CONNECT was answered {status}")
            return
        begun = len(talk.data)
        hello = bytes.fromhex(self.given["hex"])
        self.send_pieces(talk, hello)
        if "allow" in self.verdicts():
            talk.read_until(lambda data: data[begun:] == ALERT, ANSWER_SECONDS)
            if not self.has_come(hello) and self.vector["name"] not in EITHER:
                self.fault("closed", "upstream did not get the ClientHello")
        else:
            end = time.monotonic() + DEADLINE_SECONDS
            while not (is_closed := talk.is_closed(0.1)) and time.monotonic() < end \
                    and not self.has_come_through():
                continue
            if self.has_come_through():
                if self.vector["name"] not in EITHER:
                    self.fault("open", "bytes of the tunnel went upstream")
            elif not is_closed:
                self.fault("words", "the tunnel stays open")
        talk.close()

    def has_come(self, hello):
        """The rest may still be on its way when the first bytes are answered."""
        end = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < end:
            if any(bytes(seen.data) == hello for seen in self.world.servers.seen):
                return True
            time.sleep(0.005)
        return False

    def has_come_through(self):
        return any(seen.data for seen in self.world.servers.seen)

    def send_pieces(self, talk, hello):
        sizes = self.given.get("tcp_segments", [len(hello)])
        if sizes == "1-byte":
            sizes = [1] * len(hello)
        talk.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        place = 0
        for size in sizes:
            talk.send(hello[place:place + size])
            place += size

    def run_tcp(self):
        talk = Talk(self.target.connect(STRANGER))
        talk.send(self.given["bytes"].encode())
        self.judge(talk, True, b"", b"")
        talk.close()

    def run_http_exchange(self):
        said = self.given["response"]
        if said.startswith("("):
            self.world.names.set("api.example.com", SILENT)
        else:
            self.serve_tls(answer_with(self.response_bytes(said)))
        talk = Talk(self.target.connect())
        talk.send(self.given["request"].encode())
        status = talk.read_head(DEADLINE_SECONDS)
        talk.read_rest()
        talk.close()
        wanted = self.expected.get("status")
        if not status or (wanted and status != wanted):
            self.fault("words", f"answered {status}, the table says {wanted}")
        head, _, body = bytes(talk.data).partition(b"\r\n\r\n")
        if b"gzip" in head.lower():
            with contextlib.suppress(OSError, EOFError):
                body = gzip.decompress(body)
        said = (head + b"\r\n\r\n" + body).decode("latin-1")
        # A value that chunks cut is whole again for whoever reads the body.
        said += re.sub(r"\r\n[0-9a-f]+\r\n", "", body.decode("latin-1"))
        for words in self.expected.get("client_must_not_contain", [SECRET]):
            if words in said:
                self.fault("open", f"the guest got {words!r}")
        if self.expected.get("replace_with", "") not in said:
            self.fault("words", "the placeholder is not back in its place")

    @staticmethod
    def response_bytes(said):
        packed = gzip.compress(SECRET.encode())
        data = said.replace("<n>", str(len(packed))).encode("latin-1")
        return data.replace(f"<gzip of {SECRET}>".encode(), packed)

    def run_admin_put(self):
        given = self.given
        if "sequence" in given:
            self.check_reload()
            return
        more = {"policy": self.target.policy_of(load()["policies"]["P"])}
        if "allow" in given:
            more["policy"]["allow"] = given["allow"]
        if "transform" in given:
            rule = {"match": {"host": "api.example.com"}, **given["transform"]}
            more["transformations"] = [rule]
        status = self.put("config", more)
        wanted = self.expected.get("status", 200)
        if (status < 300) != (wanted < 300):
            self.fault("open", f"answered {status}, the table says {wanted}")
        elif status >= 300 and status != wanted:
            self.fault("words", f"answered {status}, the table says {wanted}")
        self.target.admin("DELETE", "/v1/workspaces/config")

    def put(self, name, more):
        body = {"source": {"address": "10.8.0.201"}, "key": "0" * 64, **more}
        return self.target.admin("PUT", f"/v1/workspaces/{name}", body).status

    def check_reload(self):
        """A policy that is refused leaves the former one in force, for PUT and for PATCH."""
        bad = {"mode": "custom", "allow": ["*"], "http": 7}
        if self.target.admin("PATCH", "/v1/workspaces/vector", {"policy": bad}).status != 400:
            self.fault("open", "a wrong policy was taken")
        for host, wanted in (("api.example.com", 200), ("evil.test", 403)):
            talk = Talk(self.target.connect())
            talk.send(f"CONNECT {host}:443 HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            if (status := talk.read_head()) != wanted:
                self.fault("open", f"afterwards {host} is answered {status}")
            talk.close()

    def run_sequence(self):
        """Another workspace at the same address: nothing of the former one is left."""
        table = load()["policies"]["PC"]
        with_credentials = {"policy": self.target.policy_of(table),
                            "transformations": table["credentials"]}
        address = {"address": "10.8.0.9"}
        old_key = self.target.register("sbx-a", address, **with_credentials)
        self.target.register("sbx-b", address, policy=with_credentials["policy"])
        self.serve_tls(answer_ok)
        for key, wanted in ((None, 200), (old_key, 403)):
            talk = Talk(self.target.connect("10.8.0.9", key))
            talk.send(b"GET /https/api.example.com/ HTTP/1.1\r\nHost: x\r\n"
                      b"x-api-key: PLACEHOLDER-5f2c\r\n\r\n")
            if (status := talk.read_head()) != wanted:
                self.fault("open", f"answered {status} instead of {wanted}")
            talk.close()
        if any(SECRET.encode() in seen.data for seen in self.world.servers.seen):
            self.fault("open", "the former workspace's credential went out")
        self.target.admin("DELETE", "/v1/workspaces/sbx-b")
