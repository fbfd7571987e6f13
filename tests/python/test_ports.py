"""Ports: servers inside are reached from here."""

import socket
import threading

import pytest
from conftest import wait_until

import libsandbox

ECHO = ("import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(8);"
        "print(s.getsockname()[1], flush=True)\n"
        "while True:\n c = s.accept()[0]\n"
        " while d := c.recv(65536): c.sendall(d.upper())\n c.close()")


@pytest.fixture
def server(own):
    process = own.start(["python3", "-c", ECHO], role="service")
    return own, int(next(line for _, line in process.lines()))


def test_dial_and_talk(server):
    own, port = server
    with own.ports.dial(port) as connection:
        connection.write(b"hello")
        assert connection.read(timeout=30) == b"HELLO"
        connection.write(bytearray(b"abc"))
        connection.end_output()
        assert b"".join(connection) == b"ABC"
        assert connection.fileno() >= 0
    with pytest.raises(libsandbox.Closed):
        connection.read()
    assert port in [each.port for each in own.ports.list()]


def test_nothing_listens(own):
    with pytest.raises(libsandbox.NotFound) as raised:
        own.ports.dial(9)
    assert raised.value.reason == "connection-refused"
    with pytest.raises(OverflowError):
        own.ports.dial(65536)


def test_closing_a_connection_ends_its_reader(server):
    own, port = server
    connection = own.ports.dial(port)
    ends = []
    thread = threading.Thread(target=lambda: ends.append(list(connection)))
    thread.start()
    connection.close()
    thread.join(30)
    assert ends == [[]]


def test_forward_until_it_is_closed(server):
    own, port = server
    with own.ports.forward(port) as forward:
        with socket.create_connection(("127.0.0.1", forward.host_port), 30) as plain:
            plain.sendall(b"through")
            assert plain.recv(100) == b"THROUGH"
        number = forward.host_port

    def refused():
        try:
            socket.create_connection(("127.0.0.1", number), 1).close()
        except OSError:
            return True
        return False
    wait_until(refused, "the end of the listener")
