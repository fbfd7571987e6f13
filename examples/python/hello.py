"""hello.py [URI]: makes a workspace, runs one command in it, shows what it said, deletes it."""

import sys

import libsandbox


def main(uri=None):
    with libsandbox.Client(uri) as client:
        # If this program dies, the workspace goes by itself.
        with client.create_workspace(expires_after=600, temporary=True) as workspace:
            result = workspace.run(["echo", "Hello from inside"], text=True)
            print(result.stdout, end="")
            return result.returncode


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except libsandbox.Error as error:
        sys.exit(f"hello: {error}")
