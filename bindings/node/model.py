"""What the writers share: each function as JavaScript calls it, each struct as JavaScript sees it."""

from __future__ import annotations

import dataclasses
import signal

import names
from describe import Enum, Function, Interface, Problem, Struct, camel, word_of

NUMBERS = {"uint16_t": "U16", "uint32_t": "U32", "uint64_t": "U64", "size_t": "SIZE",
           "int": "I32", "int32_t": "I32", "int64_t": "I64"}
MOST = {"uint16_t": "UINT16_MAX", "uint32_t": "UINT32_MAX", "uint64_t": "UINT64_MAX",
        "int": "64"}  # the one int that is given is a signal

CHECKS = "q(const).sandbox_check"
PROGRESS = "p.f(p.q(const).sandbox_copy_progress,p.void)."


@dataclasses.dataclass
class Shown:
    """A field as JavaScript sees it."""
    name: str
    kind: str
    path: str   # within the C struct
    other: str  # the size that belongs to it, or ""
    words: str  # of an enum, or "signal"; the struct of OPTIONS
    documentation: str


@dataclasses.dataclass
class Argument:
    name: str
    kind: str  # TEXT, TEXT_OR_NOTHING, NUMBER, BYTES, FIELD, COMMAND
    most: str
    shown: Shown | None = None


@dataclasses.dataclass
class Call:
    """A function that can wait, as the engine runs it."""
    function: Function
    row: str         # its name in the addon
    owner: str       # its class, or ""
    method: str
    arguments: list[Argument]
    options: list[str]  # structs
    outcome: str
    produces: str    # a struct, a handle or a list
    given: list[str]  # what C is called with
    out: str         # the type of the variable that takes the result, or ""


def fields_of(interface: Interface, struct: Struct, is_input: bool) -> list[Shown]:
    shown: list[Shown] = []
    for field in struct.fields:
        if field.name in names.NO_FIELDS or field.name.startswith("reserved"):
            continue
        if field.type in names.FLAT:
            for inner in fields_of(interface, interface.structs[field.type], is_input):
                inner.path = f"{field.name}.{inner.path}"
                shown.append(inner)
            continue
        name = names.FIELDS.get((struct.name, field.name), camel(field.name))
        kind, other, words = kind_of(interface, struct, field, is_input)
        shown.append(Shown(name, kind, field.name, other, words, field.documentation))
    return shown


def nested_of(field) -> str:
    """The options struct that a field points at, or ""."""
    name = field.type.removeprefix("q(const).").removeprefix("struct ")
    return name if field.declarator == "p." and name.endswith("_options") else ""


def kind_of(interface: Interface, struct: Struct, field, is_input: bool) -> tuple[str, str, str]:
    kind, declarator = field.type, field.declarator
    nested = nested_of(field)
    if nested:
        return "OPTIONS", "", nested
    if (struct.name, field.name) in names.SIGNALS:
        return "WORD", "", "signal"
    if declarator == "":
        if kind in interface.enums:
            return "WORD", "", kind
        if kind == "bool":
            return "BOOL", "", ""
        if kind == "uint32_t" and field.name.endswith("_ms") and is_input:
            return "WAIT", "", ""
        if kind in NUMBERS:
            return NUMBERS[kind], "", ""
    if kind == "char" and declarator.startswith("a("):
        return "CHARS", "", ""
    if kind == "q(const).char":
        if declarator == "p.":
            return "TEXT", "", ""
        if declarator == "p.q(const).p.":
            return ("PAIRS" if field.name in names.PAIRS else "TEXTS"), "", ""
    if kind in ("q(const).uint8_t", "q(const).void") and declarator == "p.":
        return "BYTES", f"{field.name}_size", ""
    if kind == CHECKS and declarator == "p.":
        return "CHECKS", "check_count", ""
    if declarator == PROGRESS:
        return "PROGRESS", "user_data", ""
    raise Problem(f"{struct.name}.{field.name}: JavaScript has nothing for {declarator}{kind}")


def is_getter(function: Function) -> bool:
    return function.type != "sandbox_status"


def call_of(interface: Interface, function: Function) -> Call:
    owner = interface.handles.get(function.owner, "")
    row = "_".join(filter(None, [function.owner.removeprefix("sandbox_"), function.name]))
    call = Call(function, row, owner, camel(function.name), [], [], "NOTHING", "", [], "")
    if function.owner:
        call.given.append("call->self->thing")
    for position, parameter in enumerate(function.parameters):
        add_parameter(interface, call, parameter, function.parameters[:position])
    lifted = names.LIFTED.get(function.c_name)
    if lifted:
        options = interface.structs[call.options[0]]
        shown = next(each for each in fields_of(interface, options, True) if each.path == lifted[0])
        call.arguments.insert(0, Argument(shown.name, "FIELD", "1" if lifted[1] else "0", shown))
    if function.c_name in names.COMMANDS:
        call.arguments.insert(0, Argument("command", "COMMAND", "0"))
    return call


def add_parameter(interface: Interface, call: Call, parameter, before) -> None:
    kind, name, function = parameter.type, parameter.name, call.function
    index = len(call.arguments)
    if kind == "p.q(const).char":
        optional = (function.c_name, name) in names.OPTIONAL
        call.arguments.append(Argument(camel(name), "TEXT_OR_NOTHING" if optional else "TEXT", "0"))
        call.given.append(f"call->text[{index}]")
    elif kind in MOST:
        call.arguments.append(Argument(camel(name), "NUMBER", MOST[kind]))
        call.given.append(f"({kind})call->number[{index}]")
    elif kind == "p.q(const).void":
        call.arguments.append(Argument(camel(name), "BYTES", "0"))
        call.given.append("call->data")
    elif kind == "size_t" and before and before[-1].type == "p.q(const).void":
        call.given.append("call->data_size")
    elif kind == "p.q(const).sandbox_call":
        call.given.append("&call->call")
    elif kind.startswith("p.q(const).") and kind.endswith("_options"):
        call.given.append(f"call->options[{len(call.options)}]")
        call.options.append(kind.removeprefix("p.q(const)."))
    elif kind == "p.sandbox_error":
        call.given.append("&call->error")
    else:
        add_result(interface, call, kind, before)


def add_result(interface: Interface, call: Call, kind: str, before) -> None:
    made = kind.removeprefix("p.p.")
    if kind == "p.p.uint8_t":
        call.outcome, call.out = "BYTES", "uint8_t *"
        call.given.append("&out")
    elif kind == "p.p.q(const).uint8_t":
        call.outcome = "BORROWED"
        call.given.append("&call->borrowed")
    elif kind == "p.size_t":
        is_size = before and "uint8_t" in before[-1].type
        call.given.append("&call->out_size" if is_size else "&call->count")
        if not is_size:
            call.outcome = "COUNT"
    elif kind.startswith("p.p.") and made in interface.handles:
        call.outcome, call.produces, call.out = "HANDLE", made, f"{made} *"
        call.given.append("&out")
    elif kind.startswith("p.p.sandbox_"):
        first = call.function.c_name in names.ONE or made in interface.structs
        call.outcome, call.produces, call.out = ("FIRST" if first else "LIST"), made, f"{made} *"
        call.given.append("&out")
    elif kind.removeprefix("p.") in interface.structs:
        call.outcome, call.produces = "STRUCT", kind.removeprefix("p.")
        call.given.append("call->result")
    else:
        raise Problem(f"{call.function.c_name}: JavaScript has nothing for a parameter {kind}")


def element_of(interface: Interface, made: str) -> str:
    """The struct that a list holds; of a struct itself, that."""
    if made in interface.structs:
        return made
    at = interface.hidden.get(f"{made}_at")
    if at is None:
        raise Problem(f"{made} has no function that gives its elements")
    return at.type.removeprefix("p.q(const).")


def calls_of(interface: Interface) -> list[Call]:
    return [call_of(interface, each) for each in interface.functions if not is_getter(each)]


def getters_of(interface: Interface) -> list[Function]:
    return [each for each in interface.functions if is_getter(each)]


def words_of(interface: Interface, name: str) -> list[tuple[str | None, int]]:
    if name == "signal":
        return [(None, 0)] + [(each.name, each.value) for each in signal.Signals]
    enum: Enum = interface.enums[name]
    return [(word_of(enum, item), number) for item, number in enum.items]
