"""stream_output.py [URI]: shows a command's output while it runs, each stream under its own name,
and answers its question."""

import sys

import libsandbox

LINE = ("for i in 1 2 3; do echo line $i; echo note $i >&2; done; "
        "echo 'your name?'; read name; echo \"hello $name\"; exit 7")


def main(uri=None):
    with libsandbox.Client(uri) as client:
        with client.create_workspace(expires_after=600, temporary=True) as workspace:
            process = workspace.start(LINE, input="pipe", deadline=60)
            process.write(b"Ada\n")
            # Whole lines, of both streams as they come. For pieces of any size: process.text().
            for stream, line in process.lines():
                print(f"[{stream}] {line}", end="")
            print(f"[ended with {process.exit.code}]")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except libsandbox.Error as error:
        sys.exit(f"stream_output: {error}")
