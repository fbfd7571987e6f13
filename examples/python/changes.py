"""changes.py [URI]: watches a folder of a workspace, changes it in every way there is, and shows
what the watch tells."""

import sys

import libsandbox


def change_files(files):
    files.make_directory("watched/inner", recursive=True)
    files.write("watched/draft", b"text\n")
    files.set_mode("watched/draft", 0o600)
    files.rename("watched/draft", "watched/final")
    files.link("final", "watched/newest")
    files.remove("watched/inner", recursive=True)
    # The sign by which the reader knows that it has seen everything.
    files.write("watched/end", b"")


def main(uri=None):
    with libsandbox.Client(uri) as client:
        with client.create_workspace(expires_after=600, temporary=True) as workspace:
            workspace.files.make_directory("watched")
            with workspace.files.watch("watched") as watch:
                change_files(workspace.files)
                for event in watch:
                    print(event.change, event.path, event.new_path)
                    if "end" in (event.path, event.new_path) or event.change == "overflow":
                        break


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except libsandbox.Error as error:
        sys.exit(f"changes: {error}")
