"""Reads the description of the interface: SWIG's parse tree of sandbox.i, and the headers' comments.

What comes out is what the writers beside it need: classes with their methods, structs with their
fields, enums with their words. What no description can say stands in names.py.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import xml.etree.ElementTree as tree

import names


@dataclasses.dataclass
class Parameter:
    type: str
    name: str


@dataclasses.dataclass
class Function:
    """`owner` is the struct that it is a method of, or "" ; `c_name` what C calls it."""
    owner: str
    name: str
    c_name: str
    type: str
    parameters: list[Parameter]
    documentation: str = ""


@dataclasses.dataclass
class Field:
    type: str
    declarator: str
    name: str
    documentation: str = ""


@dataclasses.dataclass
class Struct:
    name: str
    fields: list[Field]
    documentation: str = ""


@dataclasses.dataclass
class Enum:
    name: str
    items: list[tuple[str, int]]
    documentation: str = ""


@dataclasses.dataclass
class Interface:
    handles: dict[str, str]  # struct -> class
    functions: list[Function]
    hidden: dict[str, Function]  # what no language shows as a function: of lists, and frees
    structs: dict[str, Struct]
    enums: dict[str, Enum]


class Problem(Exception):
    """The description says something that this binding does not know yet."""


def attributes(node: tree.Element) -> dict[str, str]:
    found = node.find("attributelist")
    if found is None:
        return {}
    return {each.get("name", ""): each.get("value", "") for each in found.findall("attribute")}


def parameters(node: tree.Element) -> list[Parameter]:
    found = node.findall("attributelist/parmlist/parm")
    pairs = [attributes(each) for each in found]
    return [Parameter(each["type"], each.get("name", "")) for each in pairs
            if each["type"] != "void"]


def read_function(node: tree.Element, owner: str, aliases: dict[str, str]) -> Function:
    facts = attributes(node)
    pointer = re.match(r".*\)\.(.*)$", facts["decl"])  # what follows the last bracket
    shown = facts.get("sym_name", facts["name"])
    c_name = f"{owner}_{facts['name']}" if owner else facts["name"]
    kind = (pointer.group(1) if pointer else "") + facts["type"]
    return Function(owner, shown, aliases.get(c_name, c_name), kind, parameters(node))


def read_struct(node: tree.Element) -> Struct:
    fields = []
    for member in node.iter("cdecl"):
        facts = attributes(member)
        if facts.get("kind") == "variable":
            fields.append(Field(facts["type"], facts.get("decl", ""), facts["name"]))
    return Struct(attributes(node)["name"], fields)


def read_enum(node: tree.Element) -> Enum:
    items = []
    for item in node.iter("enumitem"):
        facts = attributes(item)
        items.append((facts["name"], int(facts["enumvalue"], 0)))
    return Enum(attributes(node)["name"], items)


def read_aliases(path: pathlib.Path) -> dict[str, str]:
    text = path.read_text(encoding="utf-8")
    return dict(re.findall(r"^#define (sandbox_\w+) (sandbox_\w+)$", text, re.MULTILINE))


def read_tree(xml: pathlib.Path, aliases: dict[str, str]) -> Interface:
    found = Interface({}, [], {}, {}, {})
    methods: set[int] = set()
    root = tree.parse(xml).getroot()
    for node in root.iter("class"):
        facts = attributes(node)
        name = facts.get("name", "")
        inner = [each for each in node.iter("cdecl") if attributes(each).get("kind") == "function"]
        methods.update(id(each) for each in inner)
        if name.startswith("sandbox_") and not facts.get("feature_ignore"):
            found.handles[name] = facts["sym_name"]
            found.functions += [read_function(each, name, aliases) for each in inner]
        elif name.startswith("sandbox_"):
            found.structs[name] = read_struct(node)
    for node in root.iter("enum"):
        if attributes(node).get("name", "").startswith("sandbox_"):
            enum = read_enum(node)
            found.enums[enum.name] = enum
    for node in root.iter("cdecl"):
        facts = attributes(node)
        if id(node) in methods or facts.get("kind") != "function" or facts.get("ismember"):
            continue
        if facts.get("name", "").startswith("sandbox_"):
            function = read_function(node, "", aliases)
            if facts.get("feature_ignore"):
                found.hidden[function.c_name] = function
            elif function.c_name not in {each.c_name for each in found.functions}:
                found.functions.append(function) # the header declares it once more
    return found


COMMENT = r"/\*\*(?!<)((?:(?!\*/).)*)\*/\s*"


def clean(comment: str) -> str:
    lines = [re.sub(r"^\s*\*? ?", "", line).rstrip() for line in comment.split("\n")]
    return "\n".join(lines).strip()


def read_comments(headers: pathlib.Path, interface: Interface) -> None:
    """Gives functions, structs, fields and enums the comments that the headers have for them."""
    by_name = {each.c_name: each for each in interface.functions}
    for path in sorted(headers.glob("*.h")):
        text = path.read_text(encoding="utf-8")
        for match in re.finditer(COMMENT + r"SANDBOX_(?:CHECKED|API)\s[^;(]*?(\w+)\(", text, re.DOTALL):
            if match.group(2) in by_name:
                by_name[match.group(2)].documentation = clean(match.group(1))
        for match in re.finditer(r"(?:" + COMMENT + r")?typedef (?:struct|enum) (\w+) \{(.*?)\n\} \2;",
                                 text, re.DOTALL):
            comment, name, body = clean(match.group(1) or ""), match.group(2), match.group(3)
            if name in interface.enums:
                interface.enums[name].documentation = comment
            elif name in interface.structs:
                interface.structs[name].documentation = comment
                read_field_comments(body, interface.structs[name])


def read_field_comments(body: str, struct: Struct) -> None:
    fields = {each.name: each for each in struct.fields}
    pattern = (r"(?:/\*\*(?!<)((?:(?!\*/).)*)\*/\s*)?"
               r"((?:[\w\s*,\[\]]|\([^;]*\))+);(?:[ \t]*/\*\*<((?:(?!\*/).)*)\*/)?")
    for match in re.finditer(pattern, body, re.DOTALL):
        comment = clean(match.group(1) or match.group(3) or "")
        for name in re.findall(r"\b(\w+)\s*(?:\[\w+\])?\s*(?:,|$)", match.group(2)):
            if name in fields:
                fields[name].documentation = comment


def read(xml: pathlib.Path, bindings: pathlib.Path, headers: pathlib.Path) -> Interface:
    interface = read_tree(xml, read_aliases(bindings / "aliases.h"))
    read_comments(headers, interface)
    for name in names.LEFT_OUT - {each.c_name for each in interface.functions}:
        raise Problem(f"names.py leaves out {name}, which is not in the description")
    interface.functions = [each for each in interface.functions
                           if each.c_name not in names.LEFT_OUT]
    interface.handles = {struct: shown for struct, shown in interface.handles.items()
                         if struct not in names.NO_CLASSES}
    return interface


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def word_of(enum: Enum, item: str) -> str:
    """SANDBOX_FROM_LIVE_FILES of sandbox_from: "live-files"."""
    words = [name.split("_") for name, _ in enum.items]
    shared = 0
    while all(len(each) > shared + 1 and each[shared] == words[0][shared] for each in words):
        shared += 1
    return "-".join(item.split("_")[shared:]).lower()


def class_of_status(item: str) -> str:
    """SANDBOX_NOT_FOUND: "NotFoundError"."""
    return "".join(word.capitalize() for word in item.split("_")[1:]) + "Error"
