"""Output: complete before the end, byte exact, bounded, to any number of readers."""
import hashlib
import os
import signal
import subprocess
import threading
import time

import grpc
import pytest

from conftest import COUNT, Output, descendants_of, fails, lives, processes_pb2, until

CODE = grpc.StatusCode
MIB = 1 << 20


def pressed(agent, id, at_least=0):
    """The number of bytes a blocked command has got rid of, once it stays the same."""
    last = [-1, 0]

    def settled():
        info = next(info for info in agent.list() if info.id == id)
        same = info.output_bytes == last[0] and info.output_bytes >= at_least
        last[1] = last[1] + 1 if same else 0
        last[0] = info.output_bytes
        return last[1] > 20
    until(settled, "the command is blocked")
    return last[0]


def test_p004_a_large_print_is_whole_with_a_slow_reader(agent):
    wanted = hashlib.sha256(b"".join(b"%d\n" % n for n in range(1, 100_001))).digest()
    for _ in range(COUNT):
        output = Output()
        for event in agent.attach(agent.start("seq 1 100000")):
            time.sleep(0.001)  # the slowness that the case is about
            output.add(event)
        assert len(output.stdout) == 588_895
        assert hashlib.sha256(output.stdout).digest() == wanted
        assert output.exit.code == 0


def test_p004_print_and_exit_is_whole_however_late_it_is_read(agent):
    program = "import os\nos.write(1, b'x' * 66889 + b'\\n')\nos._exit(3)"
    for late in [False, True] * COUNT:
        id = agent.start(argv=["/usr/bin/python3", "-c", program])
        if late:
            agent.wait(id)
        output = agent.collect(id)
        assert output.stdout == b"x" * 66889 + b"\n" and output.exit.code == 3


def test_p004_what_is_left_in_full_pipes_comes_before_the_end(agent):
    """The ring is full and the pipe too when the command ends; nobody has read yet."""
    size = MIB + MIB // 2
    id = agent.start(f"head -c {size} /dev/zero; head -c 9000 /dev/zero >&2", buffer_bytes=8192)
    pressed(agent, id, 8192)
    output = agent.collect(id)
    assert (len(output.stdout), len(output.stderr), output.lost) == (size, 9000, 0)


def test_wait_answers_although_nobody_reads(agent):
    id = agent.start("head -c 700000 /dev/zero; exit 4", buffer_bytes=4096)
    assert agent.wait(id).code == 4
    assert len(agent.collect(id).stdout) == 700_000


def test_p002_p016_streams_have_separate_room(agent):
    output = agent.run("head -c 100001 /dev/zero; echo diagnosis >&2; exit 1")
    assert (len(output.stdout), output.stderr, output.exit.code) == (100_001, b"diagnosis\n", 1)
    output = agent.run("head -c 1000000 /dev/zero >&2; echo out")
    assert (output.stdout, len(output.stderr)) == (b"out\n", 1_000_000)


@pytest.mark.parametrize("command, wanted", [
    (r"printf 'a\n\n\nb\r\n\n'", b"a\n\n\nb\r\n\n"),
    (r"printf '\342'; printf '\211'; printf '\244'", b"\xe2\x89\xa4"),
    (r"printf '\000\377\376x'", b"\0\xff\xfex"),
    ("true", b""),
], ids=["p156_blank_lines", "p074_split_character", "any_bytes", "nothing"])
def test_output_is_byte_exact(agent, command, wanted):
    assert agent.run(command).stdout == wanted


def test_p191_p075_lines_have_no_limit(agent):
    output = agent.run("head -c 10000000 /dev/zero | tr '\\0' x; echo")
    assert output.stdout == b"x" * 10_000_000 + b"\n"


def test_p006_p034_a_gibibyte_flows_through_flat_memory(agent):
    agent.run("head -c 4000000 /dev/zero")
    before = agent.private_kib()
    size, most = 0, 0
    id = agent.start("head -c 1073741824 /dev/zero")
    for event in agent.attach(id, timeout=120):
        if event.kind == processes_pb2.ProcessEvent.KIND_OUTPUT:
            assert event.offset == size and len(event.data) <= 256 << 10
            if size // (64 * MIB) != (size + len(event.data)) // (64 * MIB):
                most = max(most, agent.private_kib())
            size += len(event.data)
    assert size == 1 << 30
    assert most - before < agent.memory_limit(8192)


def test_block_makes_the_command_wait_while_nobody_reads(agent):
    id = agent.start("exec yes", buffer_bytes=65536)
    assert pressed(agent, id) == 65536
    reader = agent.attach(id)
    got = 0
    for event in reader:
        got += len(event.data)
        if got > 8 * MIB:
            break
    reader.cancel()
    assert pressed(agent, id, got) < got + 32 * MIB
    agent.signal(id, signal.SIGKILL)
    assert agent.wait(id).signal == signal.SIGKILL


def test_drop_oldest_lets_it_run_and_says_what_is_lost(agent):
    id = agent.start("seq 1 1000000", buffer_bytes=65536, when_full=1)
    assert agent.wait(id).code == 0
    events = list(agent.attach(id))
    data = b"".join(event.data for event in events)
    total = sum(len(str(n)) + 1 for n in range(1, 1_000_001))
    assert len(data) == 65536
    assert events[1].offset == total - 65536
    assert data.endswith(b"999999\n1000000\n")


def test_p005_a_reader_that_comes_back_goes_on_where_it_was(agent):
    id = agent.start("for i in 1 2 3 4 5; do echo $i; read line; done", input=True)
    reader = agent.attach(id)
    data, written = b"", 0
    for event in reader:
        data += event.data
        if data == b"1\n2\n":
            break
        if event.data:
            written = agent.write(id, b"\n", offset=written)
    reader.cancel()
    for _ in range(4):
        written = agent.write(id, b"\n", offset=written)
    agent.wait(id)
    for offset in range(11):
        events = list(agent.attach(id, output=offset))
        assert b"".join(event.data for event in events) == b"1\n2\n3\n4\n5\n"[offset:]
        assert offset == 10 or events[1].offset == offset
    fails(CODE.OUT_OF_RANGE, "offset-ahead", next, agent.attach(id, output=11))


@pytest.mark.parametrize("chunk", [1, 70_000, 3_000_000])
def test_nothing_is_lost_when_channels_break_in_the_middle(agent, chunk):
    """What was under way to a caller comes again from the buffer, which holds it all here."""
    size = 20_000_000
    wanted = hashlib.sha256()
    id = agent.start(f"seq 1 100000000 | head -c {size}", buffer_bytes=32 * MIB)
    digest, offset, cuts, exit = hashlib.sha256(), 0, 0, None
    while exit is None:
        caller = agent.caller()
        taken = 0
        for event in caller.attach(id, output=offset):
            if event.kind == processes_pb2.ProcessEvent.KIND_EXIT:
                exit = event.exit
            elif event.data:
                assert event.offset == offset, "bytes are missing"
                digest.update(event.data)
                offset += len(event.data)
                taken += len(event.data)
                if taken >= chunk and cuts < 10:
                    cuts += 1
                    break
        caller.close()
    whole = subprocess.run(f"seq 1 100000000 | head -c {size}", shell=True, capture_output=True,
                           check=False).stdout
    wanted.update(whole)
    assert offset == size and cuts >= 6 and digest.digest() == wanted.digest()


def test_p177_eight_readers_come_and_go(agent):
    id = agent.start("seq 1 3000000", buffer_bytes=4 * MIB)
    total = sum(len(str(n)) + 1 for n in range(1, 3_000_001))
    failures, whole = [], []

    def read_all():
        try:
            caller = agent.caller()
            output = Output()
            for event in caller.attach(id, timeout=120):
                output.add(event)
            whole.append((len(output.stdout), hashlib.sha256(output.stdout).hexdigest()))
            caller.close()
        except Exception as problem:  # told by the main thread
            failures.append(problem)

    def come_and_go():
        try:
            for turn in range(10):
                caller = agent.caller()
                reader = caller.attach(id)
                for _ in range(turn):
                    next(reader, None)
                if turn % 2:
                    reader.cancel()
                caller.close()
        except grpc.RpcError as problem:
            failures.append(problem)
    steady = agent.attach(id, timeout=120)
    next(steady)
    threads = [threading.Thread(target=read_all) for _ in range(4)]
    threads += [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    size = sum(len(event.data) for event in steady)
    for thread in threads:
        thread.join(120)
    assert failures == [] and size == total
    # Those that came in time for the first byte have all; the others have the end of it.
    assert all(exact <= total for exact, _ in whole) and len(whole) == 4


def test_a_slow_reader_holds_a_blocking_command_but_not_other_calls(agent):
    id = agent.start("exec yes", buffer_bytes=65536)
    slow = agent.attach(id)
    next(slow)
    quick = agent.caller()
    assert quick.run("echo fine").stdout == b"fine\n"
    pressed(quick, id, 65536)
    begun = time.monotonic()
    for _ in range(20):
        agent.health()  # on the very channel whose other stream stands still
    assert time.monotonic() - begun < 5
    quick.close()
    slow.cancel()
    agent.signal(id, signal.SIGKILL)


def test_p157_the_first_message_comes_before_any_output(agent):
    id = agent.start("read line", input=True)
    reader = agent.attach(id)
    event = next(reader)
    assert event.kind == processes_pb2.ProcessEvent.KIND_ATTACHED
    assert event.pid == agent.last.pid
    agent.write(id, end=True)
    assert next(reader).exit.code == 1


def test_p155_a_background_job_does_not_hold_the_command_open_nor_die(agent):
    command = """
        (for i in $(seq 1 300000); do echo background $i; done; echo over > finished) &
        echo $!; echo foreground"""
    begun = time.monotonic()
    output = agent.run(command)
    assert time.monotonic() - begun < 10
    assert output.exit.code == 0 and b"foreground\n" in output.stdout
    path = os.path.join(agent.workspace, "finished")
    until(lambda: os.path.exists(path) and open(path, encoding="ascii").read() == "over\n",
          "the background job lived to its end")


def test_a_quiet_background_job_leaves_the_end_prompt(agent):
    begun = time.monotonic()
    output = agent.run("sleep 1000 & echo started")
    assert output.stdout == b"started\n" and time.monotonic() - begun < 5
    job, = [info for info in agent.list() if info.descendants == 1]
    assert not job.running
    agent.signal(job.id, signal.SIGKILL)
    until(lambda: not any(lives(pid) for pid in descendants_of(agent.process.pid)),
          "kill ends the job too")


def test_background_jobs_of_forgotten_commands_still_write(agent):
    marker = os.path.join(agent.workspace, "go")
    job = f"(until [ -e {marker} ]; do sleep 0.01; done; seq 1 200000; echo $? > status) & true"
    id = agent.start(job)
    agent.wait(id)
    for _ in range(1030):
        agent.wait(agent.start(argv=["true"]))
    fails(CODE.NOT_FOUND, "no-such-process", agent.wait, id)
    with open(marker, "w", encoding="ascii"):
        pass
    path = os.path.join(agent.workspace, "status")
    until(lambda: os.path.exists(path) and open(path, encoding="ascii").read(), "the job's end")
    with open(path, encoding="ascii") as file:
        assert file.read() == "0\n"


def test_p153_a_cut_connection_is_no_exit_code(agent):
    id = agent.start("read line; exit 7", input=True)
    caller = agent.caller()
    reader = caller.attach(id)
    next(reader)
    caller.close()
    with pytest.raises(Exception):
        next(reader)
    agent.write(id, end=True)
    assert agent.wait(id).code == 7


def test_p030_p054_the_agent_ends_under_twenty_streams(make_agent):
    agent = make_agent()
    readers = [agent.attach(agent.start("exec yes")) for _ in range(20)]
    for reader in readers:
        next(reader)
    agent.process.send_signal(signal.SIGTERM)
    assert agent.process.wait(30) == 0
    for reader in readers:
        with pytest.raises(grpc.RpcError) as caught:
            for _ in reader:
                pass
        assert caught.value.code() in (CODE.UNAVAILABLE, CODE.CANCELLED)
