"""Who fails which vector: the same table, run by the same code, against ours, squid and tinyproxy.

    SANDBOX_EGRESS_PROXY=PROGRAM /usr/bin/python3 tests/egress/peers.py [--all]

Prints a table in Markdown: how many vectors of each category a program was wrong on, then each
vector that was let through by one of them. With --all, what each program did wrong, one by one.
Needs root; what is not installed is left out.
"""

import collections
import pathlib
import sys

import vectors
from authority import Authority
from targets import ALL
from world import World

SIGNS = {"open": "let through", "closed": "does not pass", "words": "other form"}


def main():
    table, results = vectors.load(), {}
    world = World()
    authority = Authority(world.directory)
    for kind in ALL:
        if kind.is_installed():
            results[kind] = run_all(kind, table, world, authority)
        else:
            print(f"{kind.name}: not installed", file=sys.stderr)
    print_counts(table, results)
    print_let_through(table, results)
    if "--all" in sys.argv:
        print_all(results)


def run_all(kind, table, world, authority):
    """By vector: None where the program has no notion of it, or its faults."""
    found = {}
    for name, policy in table["policies"].items():
        target = kind(world, authority)
        target.start(policy)
        for vector in table["vectors"]:
            if vector["policy"]["ref"] != name:
                continue
            known = not set(kind.knows_not) & {vector["category"], vector["name"]}
            found[vector["name"]] = vectors.Run(vector, target).run() if known else None
        target.stop()
    return found


def worst(faults):
    kinds = {kind for kind, _ in faults}
    return next((kind for kind in SIGNS if kind in kinds), None)


def print_counts(table, results):
    categories = collections.Counter(vector["category"] for vector in table["vectors"])
    print("| category | vectors | " + " | ".join(kind.name for kind in results) + " |")
    print("|" + " --- |" * (len(results) + 2))
    for category, count in categories.items():
        cells = []
        for found in results.values():
            rows = [found[vector["name"]] for vector in table["vectors"]
                    if vector["category"] == category]
            cells.append(summary(rows))
        print(f"| {category} | {count} | " + " | ".join(cells) + " |")


def summary(rows):
    if all(row is None for row in rows):
        return "not known"
    counts = collections.Counter(worst(row) for row in rows if row is not None)
    said = [f"{counts[kind]} {sign}" for kind, sign in SIGNS.items() if counts[kind]]
    return ", ".join(said) or "all right"


def print_let_through(table, results):
    print("\n| vector | " + " | ".join(kind.name for kind in results) + " |")
    print("|" + " --- |" * (len(results) + 1))
    for vector in table["vectors"]:
        rows = [found[vector["name"]] for found in results.values()]
        kinds = [None if row is None else worst(row) for row in rows]
        if "open" in kinds or "closed" in kinds:
            cells = ["not known" if row is None else SIGNS.get(kind, "right")
                     for row, kind in zip(rows, kinds, strict=True)]
            print(f"| {vector['name']} | " + " | ".join(cells) + " |")


def print_all(results):
    for kind, found in results.items():
        for name, faults in found.items():
            for sort, sentence in faults or []:
                print(f"{kind.name}: {name}: {sort}: {sentence}")


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    main()
