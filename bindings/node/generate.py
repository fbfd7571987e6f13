#!/usr/bin/python3
"""Writes the engine's tables, the glue and its types from the one description of the interface.

    generate.py TREE.xml BINDINGS HEADERS EXTRAS.d.ts CALLS.c GLUE.js INDEX.d.ts

TREE.xml is what `swig -xml` makes of sandbox.i. A function, field or type that the binding does not
know what to do with is an error: nothing is left out silently.
"""

import pathlib
import sys

import describe
import write_c
import write_js
import write_types


def main() -> int:
    xml, bindings, headers, extras, calls, glue, types = map(pathlib.Path, sys.argv[1:])
    try:
        interface = describe.read(xml, bindings, headers)
        calls.write_text(write_c.write(interface), encoding="utf-8")
        glue.write_text(write_js.write(interface), encoding="utf-8")
        types.write_text(write_types.write(interface, extras.read_text(encoding="utf-8")), encoding="utf-8")
    except describe.Problem as problem:
        print(f"generate.py: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
