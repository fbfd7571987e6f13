"""port.py [URI]: starts a web server in a workspace and asks it for a page through its agent."""

import sys
import time

import libsandbox

PORT = 8421
SERVER = (f"echo 'a page from inside' >index.html; "
          f"exec python3 -m http.server {PORT} --bind 127.0.0.1")


def dial(workspace):
    for _ in range(600):
        try:
            return workspace.ports.dial(PORT)
        except libsandbox.NotFound as error:
            if error.reason != "connection-refused":
                raise
            time.sleep(0.1)  # it is not listening yet
    raise TimeoutError("the server does not listen")


def main(uri=None):
    with libsandbox.Client(uri) as client:
        with client.create_workspace(expires_after=600, temporary=True) as workspace:
            # A service: the workspace counts as idle although it runs.
            workspace.start(SERVER, role="service", when_full="drop-oldest").close()
            with dial(workspace) as connection:
                connection.write(b"GET / HTTP/1.0\r\n\r\n")
                print(b"".join(connection).decode(), end="")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (libsandbox.Error, TimeoutError) as error:
        sys.exit(f"port: {error}")
