"""Processes: their events, input, terminals, and finding them again."""

import signal
import threading

import pytest

import libsandbox


def test_events_come_in_order_and_the_last_is_the_end(workspace):
    process = workspace.start("echo a; sleep 0.05; echo b; exit 5")
    events = list(process)
    assert b"".join(event.data for event in events) == b"a\nb\n"
    assert [event.kind for event in events][-1] == "exit" and events[-1].exit.code == 5
    assert all(event.exit is None for event in events[:-1])
    assert process.exit == events[-1].exit == process.wait()
    assert list(process) == []
    with pytest.raises(libsandbox.Closed):
        process.next()


def test_a_signal_is_told(workspace):
    process = workspace.start(["sleep", "60"])
    process.signal(signal.SIGTERM)
    assert process.wait() == (-1, signal.SIGTERM, False)
    process.kill()  # nothing happens


def test_input_goes_both_ways_while_it_runs(workspace):
    process = workspace.start("while read line; do echo \"<$line>\"; done", input="pipe")
    for word in (b"one", b"two"):
        process.write(word + b"\n")
        assert process.next().data == b"<" + word + b">\n"
    process.end_input()
    assert process.next().exit.code == 0
    with pytest.raises(libsandbox.Error):
        process.write(b"late\n")


def test_p005_a_process_is_found_again_with_its_output(workspace):
    process = workspace.start("echo before; read go; echo after", input="pipe",
                              directory=".")
    assert process.next().data == b"before\n"
    identity, pid = process.id, process.pid
    process.close()
    found = workspace.find_process(identity)
    assert found.pid == pid and found.next().data == b"before\n"
    found.write(b"go\n")
    assert b"".join(event.data for event in found) == b"after\n"
    with pytest.raises(libsandbox.NotFound):
        workspace.find_process("0" * 32)


def test_the_same_id_never_starts_twice(workspace):
    identity = "1234567890abcdef" * 2
    first = workspace.start("echo $$; sleep 60", id=identity)
    second = workspace.start("echo $$; sleep 60", id=identity)
    assert first.pid == second.pid
    first.kill()


def test_a_terminal(workspace):
    """P033: with the workspace's environment; P152: and its code."""
    process = workspace.start("stty size; read x; stty size; exit 7", terminal=True, rows=30,
                              columns=100)
    shown = b""
    while b"30 100" not in shown:
        shown += process.next().data
    process.resize(90, 20)
    process.write(b"\n")
    rest = list(process)
    assert b"20 90" in b"".join(event.data for event in rest)
    assert {event.kind for event in rest} == {"stdout", "exit"} and process.exit.code == 7


def test_a_full_buffer_drops_the_oldest_and_counts(workspace):
    process = workspace.start("head -c 200000 /dev/zero; echo; read x", input="pipe",
                              when_full="drop-oldest", buffer_bytes=65536)
    process.write(b"\n")
    process.wait()
    events = [event for event in workspace.find_process(process.id) if event.data]
    assert events[0].dropped + sum(len(event.data) for event in events) == 200001
    assert events[0].dropped > 0 and events[0].offset == events[0].dropped


def test_p034_a_stream_has_no_cap(workspace):
    process = workspace.start("head -c 50000000 /dev/zero")
    assert sum(len(event.data) for event in process) == 50000000


def test_the_list_says_what_runs(own):
    process = own.start("sleep 60", role="service")
    info, = own.list_processes()
    assert (info.id, info.running, info.exit, info.role) == (process.id, True, None, "service")
    process.kill()
    process.wait()
    info, = own.list_processes()
    assert not info.running and info.exit.signal == 9


def test_its_descriptor_tells_when_there_is_something(workspace):
    import select

    process = workspace.start("read x; echo y", input="pipe")
    assert select.select([process], [], [], 0)[0] == []
    process.write(b"\n")
    seen = b""
    while not seen.endswith(b"y\n"):
        assert select.select([process], [], [], 30)[0] == [process]
        try:
            seen += process.next(timeout=0).data
        except libsandbox.TimedOut:
            pass
    assert seen == b"y\n"


def test_p177_threads_that_read_one_process_share_its_events(workspace):
    process = workspace.start("i=0; while [ $i -lt 2000 ]; do echo $i; i=$((i+1)); done")
    pieces, lock = [], threading.Lock()

    def read():
        for event in process:
            with lock:
                pieces.append((event.offset, event.data))
    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    whole = b"".join(data for offset, data in sorted(pieces) if data)
    assert whole == b"".join(b"%d\n" % n for n in range(2000))


def test_p157_a_start_does_not_wait_for_output(workspace):
    process = workspace.start("sleep 60; echo x")
    assert process.pid > 0
    process.kill()
