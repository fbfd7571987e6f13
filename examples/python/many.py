"""many.py [URI]: several workspaces at once over one client, each from a thread of its own."""

import concurrent.futures
import sys

import libsandbox


def square(client, number):
    """Any thread may use the client at any time."""
    with client.create_workspace(expires_after=600, temporary=True) as workspace:
        return workspace.run(f"echo $(({number} * {number}))", text=True, check=True).stdout


def main(uri=None):
    with libsandbox.Client(uri) as client:
        with concurrent.futures.ThreadPoolExecutor() as threads:
            numbers = range(1, 5)
            for number, answer in zip(numbers, threads.map(lambda n: square(client, n), numbers)):
                print(f"{number} squared is {answer}", end="")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except libsandbox.Error as error:
        sys.exit(f"many: {error}")
