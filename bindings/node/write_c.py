"""Writes the engine's tables: one row a function, one a struct, one an enum."""

from __future__ import annotations

import names
from describe import Interface
from model import (Argument, Call, Function, Shown, calls_of, element_of, fields_of, getters_of,
                   nested_of, words_of)

HEAD = """/* Written by generate.py from bindings/sandbox.i: do not change it, change what it is made from. */

#include "engine.h"
#include "aliases.h"

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))
"""


def short(struct: str) -> str:
    return struct.removeprefix("sandbox_")


def text(value: str | None) -> str:
    return "NULL" if value is None else f'"{value}"'


def write_words(interface: Interface, name: str) -> list[str]:
    lines = [f"static const struct word {short(name)}_list[] = {{"]
    lines += [f"    {{{number}, {text(word)}}}," for word, number in words_of(interface, name)]
    shown = "const struct words sbx_node_log" if name == "sandbox_log_level" else (
        f"static const struct words {short(name)}")
    lines += ["};", f"{shown}_words = {{{short(name)}_list, COUNT({short(name)}_list)}};", ""]
    return lines


def write_field(struct: str, field: Shown) -> str:
    other = f"offsetof({struct}, {field.other})" if field.other else "0"
    nested = field.kind == "OPTIONS"
    words = f"&{short(field.words)}_words" if field.words and not nested else "NULL"
    shape = f"&{short(field.words)}_shape" if nested else "NULL"
    return (f'    {{"{field.name}", FIELD_{field.kind}, offsetof({struct}, {field.path}), {other}, '
            f"{words}, {shape}}},")


def write_shape(interface: Interface, name: str) -> list[str]:
    struct = interface.structs[name]
    is_input = name.endswith("_options")
    lines = [f"static const struct field {short(name)}_fields[] = {{"]
    lines += [write_field(name, each) for each in fields_of(interface, struct, is_input)]
    has_size = "true" if any(each.name == "size" for each in struct.fields) else "false"
    linkage = "" if name == "sandbox_opencode" else "static "
    shown = "sbx_node_opencode" if name == "sandbox_opencode" else short(name)
    lines += ["};", f"{linkage}const struct shape {shown}_shape = {{",
              f'    "{name}", sizeof({name}), {short(name)}_fields, COUNT({short(name)}_fields), '
              f"{has_size}}};", ""]
    return lines


def write_handle(name: str) -> list[str]:
    shown = "sbx_node_workspace" if name == "sandbox_workspace" else short(name)
    linkage = "" if name == "sandbox_workspace" else "static "
    return [f"static void free_{short(name)}(void *thing)", "{", f"    {name}_free(thing);", "}",
            f'{linkage}const struct handle_kind {shown}_kind = {{"{name}", free_{short(name)}}};', ""]


def kind_name(name: str) -> str:
    return "sbx_node_workspace_kind" if name == "sandbox_workspace" else f"{short(name)}_kind"


def write_owned(interface: Interface, name: str) -> list[str]:
    kind, shape = short(name), short(element_of(interface, name))
    lines = [f"static void free_{kind}(void *owned)", "{", f"    {name}_free(owned);", "}"]
    if name in interface.structs:
        return lines + [f"static const struct owned_kind {kind}_owned = {{NULL, NULL, free_{kind}, "
                        f"&{shape}_shape}};", ""]
    lines += [f"static size_t count_{kind}(const void *owned)", "{",
              f"    return {name}_count(owned);", "}",
              f"static const void *at_{kind}(const void *owned, size_t index)", "{",
              f"    return {name}_at(owned, index);", "}",
              f"static const struct owned_kind {kind}_owned = {{count_{kind}, at_{kind}, free_{kind}, "
              f"&{shape}_shape}};", ""]
    return lines


def write_run(call: Call) -> list[str]:
    function = call.function
    name = f"{function.owner}_{function.name}" if function.owner else function.c_name
    invocation = f"{name}({', '.join(call.given)})"
    lines = [f"static sandbox_status run_{call.row}(struct call *call)", "{"]
    if call.out:
        lines += [f"    {call.out}out = NULL;", f"    sandbox_status status = {invocation};",
                  "    call->out = out;", "    return status;", "}", ""]
    else:
        lines += [f"    return {invocation};", "}", ""]
    return lines


def write_argument(argument: Argument) -> str:
    return f'{{PARAMETER_{argument.kind}, "{argument.name}", {argument.most}}}'


def produces(call: Call) -> str:
    if call.outcome == "HANDLE":
        return f"&{kind_name(call.produces)}"
    if call.outcome in ("LIST", "FIRST"):
        return f"&{short(call.produces)}_owned"
    return f"&{short(call.produces)}_shape" if call.outcome == "STRUCT" else "NULL"


def write_entry(call: Call) -> list[str]:
    owner = call.function.owner
    shapes = ", ".join(f"&{short(each)}_shape" for each in call.options) or "NULL"
    arguments = ", ".join(write_argument(each) for each in call.arguments) or "{0}"
    ignored = names.IGNORED.get(call.function.c_name)
    skipped = '" ' + " ".join(ignored) + ' "' if ignored else "NULL"
    return [f'    {{"{call.row}", run_{call.row}, {"&" + kind_name(owner) if owner else "NULL"}, '
            f"OUTCOME_{call.outcome},",
            f"     {produces(call)}, {{{shapes}}}, {skipped},",
            f"     {{{arguments}}}, {len(call.arguments)}}},"]


def write_getter(interface: Interface, function: Function) -> tuple[list[str], str]:
    row = "_".join(filter(None, [short(function.owner), function.name]))
    enum = next((each.type for each in function.parameters if each.type in interface.enums), "")
    given = ["thing"] if function.owner else []
    given += [f"({enum})word"] if enum else []
    invocation = f"{function.c_name}({', '.join(given)})"
    if function.type == "p.q(const).char":
        value = f"(struct value){{.is_text = true, .text = {invocation}}}"
    elif function.type == "bool":
        value = f"(struct value){{.is_truth = true, .number = {invocation}}}"
    else:
        value = f"(struct value){{.number = {invocation}}}"
    lines = [f"static void read_{row}(const void *thing, int word, struct value *value)", "{",
             "    (void)thing;", "    (void)word;", f"    *value = {value};", "}", ""]
    self_kind = f"&{kind_name(function.owner)}" if function.owner else "NULL"
    words = f"&{short(enum)}_words" if enum else "NULL"
    return lines, f'    {{"{row}", {self_kind}, {words}, read_{row}}},'


def is_nested(interface: Interface, name: str) -> bool:
    """Another struct points at it, so it has to stand before that one."""
    return any(nested_of(field) == name for struct in interface.structs.values()
               for field in struct.fields)


def write(interface: Interface) -> str:
    calls = calls_of(interface)
    owned = sorted({each.produces for each in calls if each.outcome in ("LIST", "FIRST")})
    shapes = {element_of(interface, each) for each in owned} | {"sandbox_opencode"}
    shapes |= {each.produces for each in calls if each.outcome == "STRUCT"}
    shapes |= {options for each in calls for options in each.options}
    shapes |= {nested_of(field) for name in shapes for field in interface.structs[name].fields
               if nested_of(field)}
    used = {field.words for name in shapes
            for field in fields_of(interface, interface.structs[name], name.endswith("_options"))}
    used |= {each.type for function in getters_of(interface) for each in function.parameters}
    used &= set(interface.enums) | {"signal"}
    lines = [HEAD]
    for name in sorted(used | {"sandbox_log_level"}):
        lines += write_words(interface, name)
    for name in sorted(interface.handles):
        lines += write_handle(name)
    for name in sorted(shapes, key=lambda each: (not is_nested(interface, each), each)):
        lines += write_shape(interface, name)
    for name in owned:
        lines += write_owned(interface, name)
    for call in calls:
        lines += write_run(call)
    lines += ["const struct entry sbx_node_entries[] = {"]
    for call in calls:
        lines += write_entry(call)
    lines += ["};", "const size_t sbx_node_entry_count = COUNT(sbx_node_entries);", ""]
    rows = []
    for function in getters_of(interface):
        body, row = write_getter(interface, function)
        lines += body
        rows.append(row)
    lines += ["const struct getter sbx_node_getters[] = {", *rows, "};",
              "const size_t sbx_node_getter_count = COUNT(sbx_node_getters);", ""]
    return "\n".join(lines)
