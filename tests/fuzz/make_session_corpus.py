#!/usr/bin/python3
"""Writes tests/fuzz/corpus/session: what an agent answers to the three calls of fuzz_session.c, one
file for each way of misbehaving that tests/doubles/agent_double.py knows.
"""

import pathlib
import sys

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "doubles"))
import agent_double as double  # noqa: E402

SIZE_MAX = 64 << 10


class Recorder:
    """A peer that writes down what it would say."""

    def __init__(self):
        self.said, self.mute, self.open = b"", False, True

    def send(self, data):
        if self.open:
            self.said += data

    def close(self):
        self.open = False


def main():
    folder = HERE / "corpus" / "session"
    folder.mkdir(parents=True, exist_ok=True)
    for name, script in double.SCRIPTS.items():
        recorder = Recorder()
        recorder.send(double.frame(double.SETTINGS, 0, 0) +
                      double.frame(double.SETTINGS, double.ACK, 0))
        for stream in (1, 3, 5):
            script(recorder, stream)
        if len(recorder.said) <= SIZE_MAX:
            (folder / name).write_bytes(recorder.said)
    pings = double.frame(double.PING, 0, 0, b"12345678") * 1200
    (folder / "pings").write_bytes(double.frame(double.SETTINGS, 0, 0) + pings)


if __name__ == "__main__":
    main()
