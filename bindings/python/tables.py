"""Writes tables.h: which fields the library's structs have and which words its enums.

    tables.py PARSE-TREE.xml HEADER-FOLDER >tables.h

The parse tree is `swig -xml` of sandbox.i, so that a field that is added to a public struct is a
keyword or an attribute in Python without anybody writing it down again. The comments come from the
headers, since the tree has none.
"""

import pathlib
import re
import sys
import xml.etree.ElementTree

NUMBERS = {"uint16_t": "UNSIGNED", "uint32_t": "UNSIGNED", "uint64_t": "UNSIGNED",
           "size_t": "UNSIGNED", "int": "SIGNED", "int32_t": "SIGNED", "int64_t": "SIGNED",
           "bool": "BOOL"}
PAIRS = ("env", "labels")
SPANS = ("skew_ms",)  # signed, and yet no moment
KEYWORDS = ("from",)
NOT_TABLES = ("sandbox_error", "sandbox_call", "sandbox_check")
# For structs that the headers explain where they are used.
COMMENTS = {"sandbox_file_event": "What happened to a watched file.",
            "sandbox_resume_result": "How a resume went.",
            "sandbox_idle_result": "How many workspaces were suspended, and how many not.",
            "sandbox_verification": "How a snapshot stands."}
SKIPPED = ("size", "user_data", "check_count")


def attributes(node):
    return {entry.get("name"): entry.get("value")
            for entry in node.find("attributelist").findall("attribute")}


def fields_of(node):
    found = [attributes(member) for member in node.findall("cdecl")]
    return [(member["name"], member["type"], member["decl"]) for member in found
            if member.get("kind") == "variable"]


def nested_of(base, declarator):
    """The options struct that a field points at, or ""."""
    name = base.removeprefix("q(const).").removeprefix("struct ")
    return name if declarator == "p." and name.endswith("_options") else ""


def kind_of(struct, name, base, declarator, enums):
    """One of the NATIVE_ kinds, and the table that it needs besides."""
    if nested_of(base, declarator):
        return "OPTIONS", None
    if declarator == "" and base in enums:
        return "WORD", f"words_{base}"
    if base == "sandbox_process_exit":
        return "EXIT", None
    if base == "q(const).sandbox_check":
        return "CHECKS", None
    if declarator.startswith("p.f("):
        return "PROGRESS", None
    if base == "q(const).char":
        if declarator == "p.":
            return "TEXT", None
        return ("PAIRS" if name in PAIRS else "TEXTS"), None
    if base == "char":
        return "CHARS", None
    if base in ("q(const).uint8_t", "q(const).void") and declarator == "p.":
        return "BYTES", None
    if declarator == "" and base in NUMBERS:
        if name.endswith("_ms"):
            is_moment = base == "int64_t" and name not in SPANS
            return ("MOMENT" if is_moment else "SPAN"), None
        return NUMBERS[base], None
    raise SystemExit(f"{struct}.{name} is of a kind that the tables do not know")


def python_name(name, names):
    plain_name = name.removesuffix("_ms")
    if plain_name != name and plain_name in names:
        return plain_name + "_time"
    return plain_name + "_" if plain_name in KEYWORDS else plain_name


def words_of(names):
    """Without what they all begin with, as a user writes them."""
    first = min(names, key=len)
    prefix = next(first[:end] for end in range(first.rfind("_") + 1, 0, -1)
                  if first[end - 1] == "_" and all(n.startswith(first[:end]) for n in names))
    return [name.removeprefix(prefix).lower().replace("_", "-") for name in names]


def comments(folder):
    """What the headers say of a field and of a struct, on one line."""
    of_field, of_struct = {}, {}
    for path in sorted(pathlib.Path(folder).glob("*.h")):
        text = path.read_text("utf-8")
        for found in re.finditer(
                r"(?:/\*\*((?:(?!\*/).)*)\*/\s*)?typedef struct (\w+) \{(.*?)\n\} \2;", text,
                re.DOTALL):
            comment, struct, body = found.groups()
            of_struct[struct] = plain(comment or "")
            for after in re.finditer(r"(\w+)(?:\[\d+\])?;\s*/\*\*<(.*?)\*/", body, re.DOTALL):
                of_field[struct, after.group(1)] = plain(after.group(2))
            for before in re.finditer(r"/\*\*([^<].*?)\*/\s*[^;]*?(\w+)(?:\[\d+\])?;", body,
                                      re.DOTALL):
                of_field.setdefault((struct, before.group(2)), plain(before.group(1)))
    return of_field, of_struct


def plain(comment):
    text = re.sub(r"\s+\*?\s*", " ", comment.replace("\n *", "\n")).strip(" *")
    text = re.sub(r"\s*Borrowed[^.]*\.", "", text).strip()  # in Python everything is copied
    return text.replace("\\", "\\\\").replace('"', '\\"')


def class_name(struct):
    return "".join(word.capitalize() for word in struct.removeprefix("sandbox_").split("_"))


def print_words(enums):
    for name, items in enums.items():
        rows = ", ".join(f'{{"{word}", {item}}}' for word, item in zip(words_of(items), items))
        print(f"static const struct native_word words_{name}[] = {{{rows}, {{NULL, 0}}}};")


def print_struct(struct, fields, enums, of_field, of_struct):
    names = [name for name, _, _ in fields]
    print(f"static const struct native_field fields_{struct}[] = {{")
    for name, base, declarator in fields:
        counts = name.endswith("_size") and name.removesuffix("_size") in names
        if name in SKIPPED or name.startswith("reserved") or (counts and base == "size_t"):
            continue
        kind, table = kind_of(struct, name, base, declarator, enums)
        counter = {"BYTES": name + "_size", "CHECKS": "check_count"}.get(kind)
        counter = f"offsetof({struct}, {counter})" if counter else "0"
        print(f'    {{"{python_name(name, names)}", "{of_field.get((struct, name), "")}", '
              f"NATIVE_{kind}, sizeof(((const {struct} *)0)->{name}), "
              f"offsetof({struct}, {name}), {counter}, {table or 'NULL'}, "
              f"{'&shape_' + nested_of(base, declarator) if kind == 'OPTIONS' else 'NULL'}}},")
    print("    {NULL, NULL, NATIVE_BOOL, 0, 0, 0, NULL, NULL}};")
    has_size = str("size" in names).lower()
    print(f'const struct native_shape shape_{struct} = {{"libsandbox.{class_name(struct)}", '
          f'"{of_struct.get(struct) or COMMENTS.get(struct, "")}", fields_{struct}, sizeof({struct}), {has_size}}};')


def main(tree, headers):
    root = xml.etree.ElementTree.parse(tree).getroot()
    enums = {attributes(node)["name"]: [attributes(item)["name"] for item in node.iter("enumitem")]
             for node in root.iter("enum")}
    structs = {attributes(node)["name"]: fields_of(node) for node in root.iter("class")}
    of_field, of_struct = comments(headers)
    print("/* Made by tables.py from the public headers. */")
    print_words(enums)
    used = [name for name, fields in structs.items() if fields and name not in NOT_TABLES]
    for name in used:
        print(f"extern const struct native_shape shape_{name};")
    for name in used:
        print_struct(name, structs[name], enums, of_field, of_struct)
    print("static const struct native_shape *const shapes[] = {")
    for name in used:
        if not name.endswith("_options") and name != "sandbox_opencode":
            print(f"    &shape_{name},")
    print("    NULL};")
    print("static const struct {const char *name; const struct native_word *words;} "
          "vocabularies[] = {")
    for name in enums:
        print(f'    {{"{name.removeprefix("sandbox_")}", words_{name}}},')
    print("    {NULL, NULL}};")


main(*sys.argv[1:])
