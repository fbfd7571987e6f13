"""suspend.py [URI]: suspends a workspace in which a process counts, and resumes it. The process
goes on where it was, and the handle on it reads on without a gap."""

import itertools
import sys

import libsandbox

# A service does not count as work that must not be suspended.
COUNTER = "n=0; while sleep 0.1; do echo $n; n=$((n+1)); done"


def main(uri=None):
    with libsandbox.Client(uri) as client:
        with client.create_workspace(expires_after=600, temporary=True) as workspace:
            numbers = workspace.start(COUNTER, role="service").lines()
            for _, line in itertools.islice(numbers, 5):
                print(line, end="")
            slept = workspace.suspend()
            print(f"suspended: no sandbox, all is in {slept.bytes} bytes")
            woke = workspace.resume()
            print(f"resumed: {'restored' if woke.restored else 'not restored'}, "
                  f"proven by {woke.proof}")
            for _, line in itertools.islice(numbers, 5):
                print(line, end="")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except libsandbox.Error as error:
        sys.exit(f"suspend: {error}")
