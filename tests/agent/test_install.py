"""The agent puts itself into a volume, as the init container of a Pod has it do."""
import os
import subprocess

from conftest import BINARY

STATIC = os.environ["SANDBOX_AGENT_STATIC"]


def install(directory):
    return subprocess.run([STATIC, "install", str(directory)], capture_output=True, timeout=60,
                          check=False)


def test_the_whole_program_is_there_and_runs(tmp_path):
    assert install(tmp_path).returncode == 0
    copy = tmp_path / "sandbox-agent"
    assert os.listdir(tmp_path) == ["sandbox-agent"]
    assert copy.stat().st_mode & 0o777 == 0o755
    with open(STATIC, "rb") as original:
        assert copy.read_bytes() == original.read()
    assert subprocess.run([copy, "version"], check=True, capture_output=True).stdout == \
        subprocess.run([BINARY, "version"], check=True, capture_output=True).stdout


def test_an_older_one_is_replaced_while_it_runs(tmp_path):
    copy = tmp_path / "sandbox-agent"
    assert install(tmp_path).returncode == 0
    running = subprocess.Popen([copy, "serve", "--socket", str(tmp_path / "socket"), "--workspace",
                                str(tmp_path)], stderr=subprocess.DEVNULL)
    before = copy.stat().st_ino
    try:
        assert install(tmp_path).returncode == 0
        assert copy.stat().st_ino != before
    finally:
        running.kill()
        running.wait(60)


def test_where_it_cannot_it_says_so(tmp_path):
    result = install(tmp_path / "none")
    assert result.returncode == 1 and b"none" in result.stderr
