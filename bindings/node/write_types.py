"""Writes index.d.ts: the types of glue.js, with the headers' comments, and what extras.d.ts adds."""

from __future__ import annotations

import re
import textwrap

import names
from describe import Enum, Interface, camel, class_of_status
from model import Call, Shown, calls_of, element_of, fields_of, getters_of, nested_of, words_of

HEAD = """/* Written by generate.py from bindings/sandbox.i and extras.d.ts. */
/// <reference lib="esnext.disposable" />

"""

SIMPLE = {"BOOL": "boolean", "TEXTS": "string[]", "CHARS": "string",
          **dict.fromkeys(("U16", "U32", "I32"), "number")}
INPUT = {**SIMPLE, **dict.fromkeys(("U64", "SIZE", "I64"), "number | bigint"), "WAIT": "number",
         "TEXT": "Text", "TEXTS": "readonly Text[]", "PAIRS": "Pairs", "BYTES": "Bytes",
         "CHECKS": "readonly Check[]", "PROGRESS": "(progress: CopyProgress) => void"}
OUTPUT = {**SIMPLE, **dict.fromkeys(("U64", "SIZE", "I64", "WAIT"), "number"), "TEXT": "string",
          "PAIRS": "Record<string, string>", "BYTES": "Uint8Array"}
ARGUMENTS = {"TEXT": "Text", "TEXT_OR_NOTHING": "Text", "NUMBER": "number | bigint", "BYTES": "Bytes",
             "COMMAND": "Command"}


def pascal(struct: str) -> str:
    name = camel(struct.removeprefix("sandbox_"))
    return name[0].upper() + name[1:]


class Writer:
    def __init__(self, interface: Interface) -> None:
        self.interface = interface
        self.calls = calls_of(interface)
        self.words = {item: f"'{word}'" for enum in interface.enums.values()
                      for (item, _), (word, _) in zip(enum.items, words_of(interface, enum.name))}
        self.words |= {item: f"`{class_of_status(item)}`"
                       for item, _ in interface.enums["sandbox_status"].items}
        self.words |= {"SANDBOX_OK": "success", "SANDBOX_FOREVER": "`Infinity`"}
        self.methods = {}
        for call in self.calls:
            owner = call.owner[:1].lower() + call.owner[1:]
            self.methods[call.function.c_name] = f"{owner}.{call.method}" if owner else call.method

    def documentation(self, comment: str, indent: str) -> list[str]:
        """C's comment in the words of JavaScript."""
        lines = [line for line in re.split(r"\n(?=@)", comment)
                 if not re.match(r"@param\s+(out|data|result|event|options|call|run_options)\b", line)]
        shown = "\n".join(lines)
        shown = re.sub(r"@param\s+(\w+)", lambda m: f"@param {camel(m.group(1))}", shown)
        shown = re.sub(r"\s*@param (?:out|result|call)\b.*", "", shown)
        shown = re.sub(r"@return ", "Rejects with, or resolves as: ", shown)
        shown = re.sub(r"\b(sandbox_\w+)\(\)", lambda m: f"`{self.methods.get(m.group(1), m.group(1))}()`",
                       shown)
        shown = re.sub(r"\bSANDBOX_[A-Z_]+\b", lambda m: self.words.get(m.group(0), m.group(0)), shown)
        shown = re.sub(r"`(\w+_\w+)`", lambda m: f"`{camel(m.group(1))}`", shown)
        shown = re.sub(r"\bsandbox_(\w+)\b", lambda m: pascal(m.group(1)), shown)
        shown = shown.replace("*/", "* /").strip()
        if not shown or shown.startswith("Set by the initializer"):
            return []
        if "\n" not in shown and len(shown) < 88:
            return [f"{indent}/** {shown} */"]
        wrapped = [piece for line in shown.split("\n")
                   for piece in (textwrap.wrap(line, 94) or [""])]
        return [f"{indent}/**"] + [f"{indent} * {line}".rstrip() for line in wrapped] + [f"{indent} */"]

    def enum(self, enum: Enum) -> list[str]:
        words = " | ".join(f"'{word}'" for word, _ in words_of(self.interface, enum.name))
        return self.documentation(enum.documentation, "") + [f"export type {pascal(enum.name)} = {words};", ""]

    def type_of(self, field: Shown, is_input: bool) -> str:
        if field.kind == "WORD":
            return "SignalName | null" if field.words == "signal" else pascal(field.words)
        if field.kind == "OPTIONS":
            return pascal(field.words)
        if is_input and field.name in names.JSON:
            return "Text | readonly Transformation[]"
        return (INPUT if is_input else OUTPUT)[field.kind]

    def struct(self, name: str) -> list[str]:
        struct = self.interface.structs[name]
        is_input = name.endswith("_options") or name == "sandbox_opencode"
        lines = self.documentation(struct.documentation, "")
        lines.append(f"export interface {pascal(name)} {{")
        hidden = {field for function, (field, _) in names.LIFTED.items()
                  for call in self.calls if call.function.c_name == function and name in call.options
                  and name != "sandbox_workspace_options"}
        hidden |= {"command", "argv"} if name == "sandbox_process_options" else set()
        for field in fields_of(self.interface, struct, is_input):
            if field.path in hidden:
                continue
            lines += self.documentation(field.documentation, "  ")
            mark = "?" if is_input else ""
            readonly = "" if is_input else "readonly "
            lines.append(f"  {readonly}{field.name}{mark}: {self.type_of(field, is_input)};")
            if field.kind == "TEXT" and not is_input and field.path in ("name", "target", "path", "new_path"):
                lines += ["  /** Where it is not UTF-8: its bytes. */",
                          f"  readonly {field.name}Bytes?: Uint8Array;"]
        return lines + ["}", ""]

    def outcome(self, call: Call) -> str:
        kind = call.outcome
        if kind == "HANDLE":
            return self.interface.handles[call.produces]
        if kind in ("LIST", "FIRST"):
            element = pascal(element_of(self.interface, call.produces))
            return element if kind == "FIRST" else f"{element}[]"
        if kind == "STRUCT":
            return pascal(call.produces)
        return {"COUNT": "number", "NOTHING": "void"}.get(kind, "Uint8Array")

    def signature(self, call: Call) -> str:
        given = []
        for each in call.arguments:
            kind = (self.type_of(each.shown, True) if each.shown else ARGUMENTS[each.kind])
            optional = each.kind == "TEXT_OR_NOTHING" or (each.kind == "FIELD" and each.most == "0")
            given.append(f"{each.name}{'?' if optional else ''}: {kind}")
        options = " & ".join([pascal(each) for each in call.options] + ["CallOptions"])
        given.append(f"options?: {options}")
        return f"{call.method}({', '.join(given)}): Promise<{self.outcome(call)}>;"

    def handle(self, struct: str) -> list[str]:
        lines = [f"export class {self.interface.handles[struct]} {{", "  private constructor();"]
        for getter in getters_of(self.interface):
            if getter.owner != struct:
                continue
            kind = {"p.q(const).char": "string", "bool": "boolean"}.get(getter.type, "number")
            lines += self.documentation(getter.documentation.replace(" Borrowed until the client is freed.", "")
                                        .replace(" Borrowed until the process is freed.", "")
                                        .replace("Borrowed until the client is freed.", "")
                                        .replace("Borrowed until the workspace is freed.", ""), "  ")
            if getter.parameters:
                asked = getter.parameters[0]
                lines.append(f"  {camel(getter.name)}({camel(asked.name)}: {pascal(asked.type)}): {kind};")
            else:
                lines.append(f"  readonly {camel(getter.name)}: {kind};")
        for call in self.calls:
            if call.function.owner == struct and call.function.c_name not in names.BY_HAND:
                lines += self.documentation(call.function.documentation, "  ")
                lines.append("  " + self.signature(call))
        return lines + ["  /** Give the handle back: deletes nothing, stops nothing inside. */",
                        "  close(): Promise<void>;", "  [Symbol.asyncDispose](): Promise<void>;", "}", ""]

    def errors(self) -> list[str]:
        lines = []
        for item, number in self.interface.enums["sandbox_status"].items:
            if number != 0:
                lines += [f"export class {class_of_status(item)} extends SandboxError {{",
                          f"  readonly code: '{item}';", f"  readonly status: {number};", "}"]
        return lines + [""]

    def write(self, extras: str) -> str:
        used = {name for call in self.calls for name in call.options}
        used |= {call.produces for call in self.calls if call.outcome == "STRUCT"}
        used |= {element_of(self.interface, call.produces) for call in self.calls
                 if call.outcome in ("LIST", "FIRST")}
        used |= {"sandbox_opencode", "sandbox_copy_progress"}
        used |= {nested_of(field) for name in used for field in self.interface.structs[name].fields
                 if nested_of(field)}
        used -= {"sandbox_client_options", "sandbox_process_event", "sandbox_process_result"}
        signals = " | ".join(f"'{word}'" for word, _ in words_of(self.interface, "signal") if word)
        lines = ["/** A signal's name. */", f"export type SignalName = {signals};", ""]
        for enum in self.interface.enums.values():
            if enum.name not in ("sandbox_status", "sandbox_process_event_kind", "sandbox_input"):
                lines += self.enum(enum)
        for name in sorted(used):
            lines += self.struct(name)
        for struct in self.interface.handles:
            lines += self.handle(struct)
        lines += self.errors()
        for call in self.calls:
            if not call.owner and call.function.c_name not in names.BY_HAND:
                lines += self.documentation(call.function.documentation, "")
                lines.append("export function " + self.signature(call))
        return HEAD + extras + "\n" + "\n".join(lines) + "\n"


def write(interface: Interface, extras: str) -> str:
    return Writer(interface).write(extras)
