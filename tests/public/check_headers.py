#!/usr/bin/python3
"""Compile every public header alone, as C11 and as C++20, with every compiler that is here.

A header that only compiles after another one, or only as C, breaks somebody's build.
"""

import pathlib
import shutil
import subprocess
import sys

C_FLAGS = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow",
           "-Wstrict-prototypes", "-Werror", "-fsyntax-only", "-x", "c"]
CXX_FLAGS = ["-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow",
             "-Werror", "-fsyntax-only", "-x", "c++"]
COMPILERS = [("gcc", C_FLAGS), ("clang", C_FLAGS), ("g++", CXX_FLAGS), ("clang++", CXX_FLAGS)]

# Twice, so that a header without its guard fails; the empty initializers are what callers write.
SOURCE = """#include <sandbox/{name}>
#include <sandbox/{name}>
int main(void);
int main(void) {{ return 0; }}
"""


def compile_header(compiler: str, flags: list[str], folder: str, name: str) -> str:
    result = subprocess.run([compiler, *flags, "-I", folder, "-"],
                            input=SOURCE.format(name=name), text=True, timeout=60,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return result.stdout if result.returncode != 0 else ""


def main() -> int:
    folder = sys.argv[1]
    names = sorted(path.name for path in pathlib.Path(folder, "sandbox").glob("*.h"))
    used = [pair for pair in COMPILERS if shutil.which(pair[0])]
    missing = [pair[0] for pair in COMPILERS if pair not in used]
    bad = 0
    for compiler, flags in used:
        for name in names:
            said = compile_header(compiler, flags, folder, name)
            if said:
                bad += 1
                print(f"{name} does not compile alone with {compiler}:\n{said}")
    umbrella = pathlib.Path(folder, "sandbox", "sandbox.h").read_text(encoding="utf-8")
    for name in names:
        if name != "sandbox.h" and f"#include <sandbox/{name}>" not in umbrella:
            bad += 1
            print(f"sandbox.h does not include <sandbox/{name}>")
    print(f"{len(names)} headers, {len(used)} compilers, {bad} problems"
          + (f"; not here: {', '.join(missing)}" if missing else ""))
    return 1 if bad or not names or not used else 0


if __name__ == "__main__":
    sys.exit(main())
