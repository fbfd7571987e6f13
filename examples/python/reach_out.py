"""reach_out.py [URI]: a workspace that may reach one host, with a credential that it never sees."""

import sys

import libsandbox

# Inside there is PLACEHOLDER alone; on the way to this host the real key takes its place.
RULE = {"match": {"host": "api.example.com",
                  "headers": [{"name": "x-api-key", "value_exact": "PLACEHOLDER"}]},
        "set": {"x-api-key": "the-real-key-of-this-example"}}
# The route of a host that is not allowed.
ANOTHER = "curl -sS -m 20 http://127.0.0.1:3128/https/elsewhere.example.net/"


def main(uri=None):
    with libsandbox.Client(uri) as client:
        if not client.can("reach-out"):
            print("this platform gives workspaces no way out")
            return
        with client.create_workspace(
                expires_after=600, temporary=True,
                egress={"allow": ["api.example.com"], "transformations": [RULE]}) as workspace:
            told = workspace.inspect_egress()
            for host in told.allow:
                print(f"may reach {host}")
            for known in told.credentials:
                print(f"a credential for {known}")
            print(workspace.run(ANOTHER, text=True).stdout, end="")
            for refusal in workspace.read_egress_log():
                print(f"refused: {refusal.host}, {refusal.reason}")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except libsandbox.Error as error:
        sys.exit(f"reach_out: {error}")
