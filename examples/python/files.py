"""files.py [URI]: writes a file in a workspace, lets a command work on it, lists and reads what
came of it."""

import sys

import libsandbox

POEM = b"roses\nviolets\napples\n"


def main(uri=None):
    with libsandbox.Client(uri) as client:
        with client.create_workspace(expires_after=600, temporary=True) as workspace:
            files = workspace.files
            files.write("work/poem.txt", POEM)  # missing directories are made
            result = workspace.run("sort poem.txt >sorted.txt", directory="work")
            print("sort ended with", result.returncode)
            for info in files.list("work"):
                print(f"{info.name}: {info.file_size} bytes")
            print(files.read_text("work/sorted.txt"), end="")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except libsandbox.Error as error:
        sys.exit(f"files: {error}")
