"""Write: ordered, each byte once, no faster than the command reads."""
import hashlib
import os
import secrets
import signal
import threading

import grpc

from conftest import fails, processes_pb2, times_out, until

CODE = grpc.StatusCode


def test_bytes_go_in_and_come_out(agent):
    id = agent.start("cat", input=True)
    assert agent.write(id, b"one\n\0\xff") == 6
    assert agent.write(id, b"two", offset=6, end=True) == 9
    output = agent.collect(id)
    assert output.stdout == b"one\n\0\xfftwo" and output.exit.code == 0


def test_a_piece_that_is_sent_again_is_written_once(agent):
    id = agent.start("cat", input=True)
    agent.write(id, b"abc")
    assert agent.write(id, b"abc", offset=0) == 3
    assert agent.write(id, b"bcde", offset=1) == 5
    assert agent.write(id, b"", offset=5) == 5
    assert agent.write(id, b"f", offset=5, end=True) == 6
    assert agent.write(id, b"f", offset=5, end=True) == 6
    assert agent.collect(id).stdout == b"abcdef"
    assert agent.write(id, b"f", offset=5, end=True) == 6


def test_a_gap_is_refused(agent):
    id = agent.start("cat", input=True)
    fails(CODE.OUT_OF_RANGE, "gap", agent.write, id, b"x", offset=1)
    assert agent.write(id, b"x", end=True) == 1
    assert agent.collect(id).stdout == b"x"


def test_a_write_is_answered_when_the_pipe_took_it_all(agent):
    id = agent.start("read go; cat | sha256sum", input=True, env=["LC_ALL=C"])
    data = secrets.token_bytes(3_000_000)
    answers = []
    writer = threading.Thread(target=lambda: answers.append(agent.write(id, data, offset=3)))
    assert agent.write(id, b"go\n"[:2]) == 2
    assert agent.write(id, b"\n", offset=2) == 3
    writer.start()
    writer.join(30)
    assert answers == [3_000_003]
    agent.write(id, offset=3_000_003, end=True)
    assert agent.collect(id).stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_a_full_pipe_holds_up_its_own_writer_only(agent):
    id = agent.start("exec sleep 1000", input=True)
    times_out(agent.write, id, b"x" * 3_000_000, timeout=0.3)
    assert agent.run("echo free").stdout == b"free\n"
    agent.signal(id, signal.SIGKILL)


def test_what_a_cancelled_write_left_is_sent_again_from_its_offset(agent):
    fifo = os.path.join(agent.workspace, "fifo")
    os.mkfifo(fifo)
    id = agent.start("read go < fifo; exec cat", input=True)
    data = secrets.token_bytes(3_000_000)
    times_out(agent.write, id, data, timeout=0.3)
    with open(fifo, "w", encoding="ascii") as file:
        file.write("go\n")
    assert agent.write(id, data, offset=0, end=True) == len(data)
    assert agent.collect(id).stdout == data


def test_concurrent_writes_are_taken_in_order(agent):
    id = agent.start("cat", input=True)
    call = agent.method("Processes", "Write").call
    pieces = [bytes([65 + number % 26]) * 50_000 for number in range(40)]
    futures = [call.future(processes_pb2.WriteRequest(id=id, data=piece, offset=number * 50_000,
                                                      end=number == 39),
                           metadata=agent.metadata(), timeout=30)
               for number, piece in enumerate(pieces)]
    output = agent.collect(id)
    for number, future in enumerate(futures):
        assert future.result().written >= (number + 1) * 50_000
    assert output.stdout == b"".join(pieces)


def test_without_input_there_is_nothing_to_write_to(agent):
    id = agent.start("exec sleep 1000")
    fails(CODE.FAILED_PRECONDITION, "no-input", agent.write, id, b"x")
    agent.signal(id, signal.SIGKILL)


def test_input_that_was_ended_takes_no_more(agent):
    id = agent.start("cat > file; exec sleep 1000", input=True)
    agent.write(id, b"x", end=True)
    until(lambda: os.path.exists(os.path.join(agent.workspace, "file")), "cat runs")
    fails(CODE.FAILED_PRECONDITION, "input-ended", agent.write, id, b"y", offset=1)
    agent.signal(id, signal.SIGKILL)


def test_input_that_the_command_closed_is_told(agent):
    id = agent.start("exec 0<&-; echo closed; exec sleep 1000", input=True)
    reader = agent.attach(id)
    next(reader)
    assert next(reader).data == b"closed\n"
    fails(CODE.FAILED_PRECONDITION, "input-closed", agent.write, id, b"x")
    reader.cancel()
    agent.signal(id, signal.SIGKILL)


def test_a_command_that_has_ended_is_told(agent):
    id = agent.start("exit 3", input=True)
    agent.wait(id)
    fails(CODE.FAILED_PRECONDITION, "ended", agent.write, id, b"x")


def test_a_waiting_write_is_told_of_the_end(agent):
    id = agent.start("exec sleep 1000", input=True)
    problems = []

    def write():
        try:
            agent.write(id, b"x" * 3_000_000)
        except grpc.RpcError as error:
            problems.append(error)
    writer = threading.Thread(target=write)
    writer.start()
    until(lambda: agent.activity().idle_ms >= 50, "the write has arrived")
    agent.signal(id, signal.SIGKILL)
    writer.join(30)
    assert [error.code() for error in problems] == [CODE.FAILED_PRECONDITION]
    assert agent.wait(id).signal == signal.SIGKILL
