"""about.py [URI]: says what the platform behind a URI can do, and makes a workspace with the limits
that hold there."""

import sys

import libsandbox

ABILITIES = {"limit-memory": "limits memory", "limit-cpu": "limits processor time",
             "limit-processes": "limits the number of processes", "limit-disk": "limits disk space",
             "use-images": "takes images"}


def main(uri=None):
    with libsandbox.Client(uri) as client:
        print(f"libsandbox {libsandbox.version()}, driver {client.driver}, at {client.uri}")
        for ability, text in ABILITIES.items():
            print(f"  {text}: {'yes' if client.can(ability) else 'no'}")
        # What is asked for and cannot be enforced is refused, so it is asked for only where it can.
        limits = {}
        if client.can("limit-memory"):
            limits["memory_mib"] = 1024
        if client.can("limit-processes"):
            limits["process_limit"] = 256
        with client.create_workspace(expires_after=600, temporary=True, **limits) as workspace:
            # The name may be used again one day, the id never.
            print(f"made '{workspace.name}', whose id is {workspace.id}")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except libsandbox.Error as error:
        sys.exit(f"about: {error}")
