#!/usr/bin/python3
"""Three lists must be one: what the headers declare, what the library exports, symbols.txt.

symbols.txt stands in version control so that a new or lost symbol shows up in review.
"""

import pathlib
import re
import subprocess
import sys

DECLARATION = re.compile(r"\bSANDBOX_(?:API|CHECKED)\b[^;{]*?\b(sandbox_\w+)\s*\(", re.DOTALL)
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


def declared(folder: pathlib.Path) -> set[str]:
    names: set[str] = set()
    for path in sorted(folder.glob("sandbox/*.h")):
        text = COMMENT.sub(" ", path.read_text(encoding="utf-8"))
        text = re.sub(r"^\s*#[^\n]*(\\\n[^\n]*)*", "", text, flags=re.MULTILINE)
        names.update(DECLARATION.findall(text))
    return names


def exported(library: str) -> set[str]:
    said = subprocess.run(["nm", "--dynamic", "--defined-only", library], text=True, timeout=60,
                          stdout=subprocess.PIPE, check=True).stdout
    rows = [line.split() for line in said.splitlines()]
    # The version node itself is an absolute symbol and no function.
    return {row[2].split("@")[0] for row in rows if len(row) == 3 and row[1] != "A"}


def compare(left: set[str], left_name: str, right: set[str], right_name: str) -> int:
    lost = sorted(left - right)
    for name in lost:
        print(f"{name}: in {left_name}, not in {right_name}")
    return len(lost)


def main() -> int:
    library, folder, listed = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    lines = listed.read_text(encoding="utf-8").split()
    headers, symbols = declared(folder), exported(library)
    bad = 0
    if lines != sorted(set(lines)):
        bad += 1
        print("symbols.txt is not sorted, or names a symbol twice: mend it with sort -u")
    for name in sorted(symbols):
        if not name.startswith("sandbox_"):
            bad += 1
            print(f"{name}: exported without our prefix; see lib/libsandbox.map")
    bad += compare(headers, "the headers", symbols, "the library")
    bad += compare(symbols, "the library", headers, "the headers")
    bad += compare(symbols, "the library", set(lines), "symbols.txt (add it)")
    bad += compare(set(lines), "symbols.txt", symbols,
                   "the library (a symbol must never go: the ABI)")
    print(f"{len(symbols)} symbols, {bad} problems")
    return 1 if bad or not headers else 0


if __name__ == "__main__":
    sys.exit(main())
