"""Start: programs, shells, environment, directory, user, and what is refused."""
import os
import secrets
import signal
import subprocess
import threading
import time

import grpc
import pytest

from conftest import COUNT, fails, lives, processes_pb2, until

CODE = grpc.StatusCode


def test_argv_runs_without_a_shell(agent):
    output = agent.run(argv=["printf", "%s|", "a b", "$HOME", "*", ""])
    assert output.stdout == b"a b|$HOME|*||"


def test_a_command_runs_in_bash_where_there_is_one(agent):
    output = agent.run("[[ -n $BASH_VERSION ]] && echo bash; echo $0; "
                       "shopt -q login_shell; echo $?")
    assert output.stdout.split() == [b"bash", b"/bin/bash", b"1"]


def test_p192_argv_shell_and_login_shell_are_three_modes(agent):
    home = os.path.join(agent.workspace, "home")
    os.mkdir(home)
    with open(os.path.join(home, ".bash_profile"), "w", encoding="ascii") as file:
        file.write("export FROM_PROFILE=yes\n")
    named = {"env": ["HOME=" + home]}
    assert agent.run("echo $FROM_PROFILE", login_shell=True, **named).stdout == b"yes\n"
    assert agent.run("echo $FROM_PROFILE", **named).stdout == b"\n"
    assert b"FROM_PROFILE" not in agent.run(argv=["env"], **named).stdout
    fails(CODE.INVALID_ARGUMENT, "invalid", agent.start, argv=["env"], login_shell=True)


def test_p024_a_here_document_is_just_a_command(agent):
    assert agent.run("cat << 'EOF'\na $b\nEOF\n").stdout == b"a $b\n"
    assert agent.run("echo next").stdout == b"next\n"


def test_the_base_environment_is_complete_and_bare(agent):
    variables = dict(line.split(b"=", 1)
                     for line in agent.run(argv=["env", "-0"]).stdout.split(b"\0")[:-1])
    marker = variables.pop(b"SANDBOX_PROCESS_ID")
    assert marker.decode() == agent.list()[0].id.hex()
    assert variables == {
        b"PATH": b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        b"HOME": b"/root", b"USER": b"root", b"LOGNAME": b"root", b"SHELL": b"/bin/bash",
        b"LANG": b"C.UTF-8"}


def test_p190_environment_is_data_and_any_bytes(agent):
    environment = [b"OK=a\nb", b"EQUALS==x=", b"BYTES=\xff\xfe", b"EMPTY=", b"PATH=/bin:/usr/bin",
                   b"TWICE=1", b"TWICE=2"]
    seen = agent.run(argv=["env", "-0"], env=environment).stdout.split(b"\0")
    for entry in environment[:-2]:
        assert entry in seen
    assert b"TWICE=2" in seen and b"TWICE=1" not in seen
    id = agent.start("exec sleep 1000", env=["SECRET=visible-nowhere"])
    with open(f"/proc/{agent.last.pid}/cmdline", "rb") as file:
        assert b"visible-nowhere" not in file.read()
    agent.signal(id, signal.SIGKILL)


@pytest.mark.parametrize("entry", [b"=x", b"", b"NAME", b"N\0=z", b"N=\0"])
def test_p190_names_that_are_none_are_refused(agent, entry):
    fails(CODE.INVALID_ARGUMENT, "invalid", agent.start, "true", env=[entry])


@pytest.mark.parametrize("fields", [
    {"id": b"short"}, {}, {"command": "true", "argv": ["true"]}, {"argv": [""]},
    {"argv": ["echo", b"a\0b"]}, {"command": b"a\0b"}, {"command": "true", "directory": b"a\0b"},
    {"command": "true", "directory": b"x" * 5000}, {"command": "true", "buffer_bytes": 1},
    {"command": "true", "buffer_bytes": (64 << 20) + 1}])
def test_start_refuses_what_it_cannot_mean(agent, fields):
    fails(CODE.INVALID_ARGUMENT, "invalid", agent.start, **fields)
    assert len(agent.list()) == 0


def test_arguments_have_a_limit(agent):
    fails(CODE.RESOURCE_EXHAUSTED, "arguments-too-large", agent.start,
          argv=["true", b"x" * (1 << 20)])
    fails(CODE.RESOURCE_EXHAUSTED, "arguments-too-large", agent.start, "true",
          env=[b"A%d=x" % number for number in range(5000)])
    assert agent.run(argv=["true", b"x" * 100_000]).exit.code == 0


def test_p188_a_missing_directory_is_told_and_nothing_runs(agent):
    fails(CODE.NOT_FOUND, "no-such-directory", agent.start, "touch marker",
          directory=b"missing/below")
    with open(os.path.join(agent.workspace, "file"), "w", encoding="ascii"):
        pass
    fails(CODE.NOT_FOUND, "no-such-directory", agent.start, "touch marker", directory=b"file")
    assert sorted(os.listdir(agent.workspace)) == ["file"]
    assert len(agent.list()) == 0
    os.mkdir(os.path.join(agent.workspace, "w"))
    output = agent.run("true & wait; pwd", directory=b"w")
    assert output.stdout.decode() == os.path.join(agent.workspace, "w") + "\n"


@pytest.mark.parametrize("name", [b"$(touch pwn)", b"a\nb", b"-leading", b"q'uo\"te", b"\xff\xfe"])
def test_p189_a_directory_is_a_literal_path(agent, name):
    path = os.path.join(os.fsencode(agent.workspace), name)
    os.mkdir(path)
    for directory in (name, path):
        output = agent.run(argv=["sh", "-c", 'touch here; printf %s "$PWD"'], directory=directory)
        assert output.stdout == path
    assert os.listdir(path) == [b"here"] and len(os.listdir(agent.workspace)) == 1


def test_p027_a_failed_start_leaves_no_record(agent):
    for _ in range(100):
        fails(CODE.NOT_FOUND, "no-such-program", agent.start, argv=["no-such-program-here"])
    fails(CODE.NOT_FOUND, "no-such-program", agent.start, argv=["/missing/program"])
    assert len(agent.list()) == 0
    assert agent.stats().zombies == 0


def test_what_may_not_be_executed_is_denied(agent):
    path = os.path.join(agent.workspace, "plain")
    with open(path, "w", encoding="ascii") as file:
        file.write("#!/bin/sh\n")
    fails(CODE.PERMISSION_DENIED, "not-executable", agent.start, argv=[path])
    fails(CODE.PERMISSION_DENIED, "not-executable", agent.start, argv=[agent.workspace])
    os.chmod(path, 0o755)
    assert agent.run(argv=[path]).exit.code == 0
    assert agent.run(argv=["./plain"]).exit.code == 0
    with open(path, "w", encoding="ascii") as file:
        file.write("echo script $1\n")
    assert agent.run(argv=[path, "one"]).stdout == b"script one\n"


def test_programs_are_looked_for_in_the_commands_own_path(agent):
    os.mkdir(os.path.join(agent.workspace, "bin"))
    path = os.path.join(agent.workspace, "bin", "own-program")
    with open(path, "w", encoding="ascii") as file:
        file.write("#!/bin/sh\necho found\n")
    os.chmod(path, 0o755)
    fails(CODE.NOT_FOUND, "no-such-program", agent.start, argv=["own-program"])
    output = agent.run(argv=["own-program"], env=[f"PATH=/missing:{agent.workspace}/bin:/bin"])
    assert output.stdout == b"found\n"


def test_a_known_id_starts_nothing_again(agent):
    id = secrets.token_bytes(16)
    agent.start("echo run >> ran; sleep 0.1", id=id)
    first = agent.last
    assert not first.existed
    agent.start("echo run >> ran", id=id)
    assert agent.last.existed
    assert (agent.last.pid, agent.last.started_ms) == (first.pid, first.started_ms)
    agent.wait(id)
    agent.start("echo run >> ran", id=id)
    assert agent.last.existed
    with open(os.path.join(agent.workspace, "ran"), encoding="ascii") as file:
        assert file.read() == "run\n"


def test_users_are_found_by_name_and_by_number(agent):
    os.chmod(agent.workspace, 0o777)
    assert agent.run("id -u; id -g; id -G; echo $HOME $USER", user="4321:5432").stdout == \
        b"4321\n5432\n5432\n/ 4321:5432\n"
    assert agent.run("id -un; echo $HOME", user="daemon").stdout == b"daemon\n/usr/sbin\n"
    assert agent.run("id -u", user="root").stdout == b"0\n"
    for name in ("no-such-user", "1:2:3", "4294967295:0", "-1:0", "1", ":"):
        fails(CODE.NOT_FOUND, "no-such-user", agent.start, "id", user=name)


def test_a_user_can_open_its_own_stdout(agent):
    os.chmod(agent.workspace, 0o777)
    output = agent.run("echo out > /dev/stdout; echo err > /dev/stderr", user="4321:5432")
    assert (output.stdout, output.stderr) == (b"out\n", b"err\n")


def test_p175_supplementary_groups_are_those_of_the_groups_file(agent):
    with open("/etc/group", encoding="utf-8") as file:
        lines = [line.strip().split(":") for line in file if line.count(":") >= 3]
    members = {name: int(gid) for _, _, gid, names in (l[:4] for l in lines)
               for name in names.split(",") if name}
    if not members:
        pytest.skip("nobody on this machine has a supplementary group")
    name = next(iter(members))
    expected = subprocess.run(["id", "-G", name], capture_output=True, check=False).stdout
    assert sorted(agent.run("id -G", user=name).stdout.split()) == sorted(expected.split())


def test_p014_p025_without_input_a_command_reads_nothing(agent):
    output = agent.run("cat; echo done; readlink /proc/self/fd/0")
    assert output.stdout == b"done\n/dev/null\n"


def test_streams_are_real_pipes_and_nothing_else_is_inherited(agent):
    id = agent.start("readlink /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2; ls /proc/self/fd",
                     input=True)
    agent.write(id, end=True)
    lines = agent.collect(id).stdout.split()
    assert all(line.startswith(b"pipe:[") for line in lines[:3])
    assert lines[3:] == [b"0", b"1", b"2", b"3"]


def test_commands_start_with_clean_signals(agent):
    status = agent.run("grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status").stdout.split()
    assert status[1] == status[3] == b"0" * 16
    assert agent.run("yes | head -1; echo ${PIPESTATUS[0]}").stdout == b"y\n141\n"


def test_a_command_leads_its_own_session(agent):
    output = agent.run("ps -o pid=,pgid=,sid= -p $$").stdout.split()
    assert len(set(output)) == 1


def test_exit_codes_and_signals_are_told_apart(agent):
    for code in (0, 1, 7, 126, 127, 137, 255):
        exit = agent.run(f"exit {code}").exit
        assert (exit.code, exit.signal, exit.timed_out) == (code, 0, False)
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV):
        exit = agent.run(f"kill -{int(number)} $$").exit
        assert (exit.code, exit.signal) == (-1, number)


def test_p010_a_thousand_waits_all_return(agent):
    for number in range(50 * COUNT):
        id = agent.start(argv=["sh", "-c", f"exit {number % 256}"])
        assert agent.wait(id, timeout=5).code == number % 256


def test_sixty_four_commands_at_once(agent):
    ids = [agent.start(f"read line; echo $line {number}", input=True) for number in range(64)]
    failures = []

    def drive(number, id):
        try:
            agent.write(id, b"hello\n")
            assert agent.collect(id).stdout == b"hello %d\n" % number
        except Exception as problem:  # told by the main thread
            failures.append(problem)
    threads = [threading.Thread(target=drive, args=pair) for pair in enumerate(ids)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []


def test_p147_health_is_prompt_under_32_busy_commands(agent):
    ids = [agent.start("while :; do :; done", deadline_ms=60_000) for _ in range(30)]
    ids += [agent.start("exec yes", when_full=1, deadline_ms=60_000) for _ in range(2)]
    times = []
    probe = agent.caller()
    for _ in range(40):
        begun = time.monotonic()
        probe.health()
        times.append(time.monotonic() - begun)
    probe.close()
    for id in ids:
        agent.signal(id, signal.SIGKILL)
    # The probe itself has to share the processors with them; the agent's part is what is meant.
    assert sorted(times)[len(times) // 2] < 0.05


def test_more_than_1024_running_commands_are_refused_and_old_records_go(agent):
    ids = [agent.start(argv=["sleep", "1000"]) for _ in range(1024)]
    fails(CODE.RESOURCE_EXHAUSTED, "too-many-processes", agent.start, "true")
    for id in ids:
        agent.signal(id, signal.SIGTERM)
    for id in ids:
        assert agent.wait(id).signal == signal.SIGTERM
    newest = agent.start("echo newest")
    assert agent.collect(newest).stdout == b"newest\n"
    listed = [info.id for info in agent.list()]
    assert len(listed) == 1024 and listed[0] == newest
    gone = [id for id in ids if id not in listed]
    assert len(gone) == 1
    fails(CODE.NOT_FOUND, "no-such-process", agent.wait, gone[0])


def test_list_describes_each(agent):
    ended = agent.start(argv=["printf", "%s", "12345"])
    agent.wait(ended)
    running = agent.start("sleep 1000 & sleep 1000; :", role=1, terminal=(24, 80))
    until(lambda: agent.list()[0].descendants == 2, "both sleepers count")
    second, first = agent.list()
    assert (first.id, first.running, first.output_bytes) == (ended, False, 5)
    assert (first.command, first.user, first.terminal) == (b"printf %s 12345", "root", False)
    assert first.exit.code == 0 and abs(first.started_ms - time.time() * 1000) < 60_000
    assert (second.id, second.running, second.role) == (running, True, processes_pb2.ROLE_SERVICE)
    assert second.terminal and lives(second.pid)
    agent.signal(running, signal.SIGKILL)


def test_a_long_command_is_shown_shortened(agent):
    agent.run("true " + "x" * 100_000)
    assert len(agent.list()[0].command) == 4096


def test_unknown_processes_are_not_found(agent):
    id = secrets.token_bytes(16)
    for call in (agent.wait, agent.write):
        fails(CODE.NOT_FOUND, "no-such-process", call, id)
    fails(CODE.NOT_FOUND, "no-such-process", agent.signal, id, 15)
    fails(CODE.NOT_FOUND, "no-such-process", agent.resize, id, 24, 80)
    fails(CODE.NOT_FOUND, "no-such-process", next, agent.attach(id))
    fails(CODE.NOT_FOUND, "no-such-process", agent.wait, b"short")
