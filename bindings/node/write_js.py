"""Writes glue.js: the classes and functions, one line each, over the engine's rows."""

from __future__ import annotations

import names
from describe import Interface, camel, class_of_status
from model import Call, Function, calls_of, getters_of

HEAD = """/* Written by generate.py from bindings/sandbox.i: do not change it, change what it is made from. */
'use strict';

const { Handle, call, defineErrors, external, make, native } = require('./runtime.js');
"""


def invocation(call: Call) -> str:
    given = [f"native.{call.row}", "external(this)" if call.owner else "undefined", "options"]
    given += [each.name for each in call.arguments]
    made = f"call({', '.join(given)})"
    return f"make('{made_class(call)}', {made})" if call.outcome == "HANDLE" else made


def made_class(call: Call) -> str:
    return CLASSES[call.produces]


CLASSES: dict[str, str] = {}


def write_method(call: Call) -> str:
    given = ", ".join([each.name for each in call.arguments] + ["options"])
    return f"  {call.method}({given}) {{ return {invocation(call)}; }}"


def write_raw(call: Call) -> str:
    given = ", ".join((["handle"] if call.owner else []) +
                      [each.name for each in call.arguments] + ["options"])
    return f"  {call.row}: ({given}) => {invocation(call).replace('(this)', '(handle)')},"


def write_class(interface: Interface, struct: str, calls: list[Call],
                getters: list[Function]) -> list[str]:
    shown = interface.handles[struct]
    plain = [each for each in getters if not each.parameters]
    asking = [each for each in getters if each.parameters]
    prefix = struct.removeprefix("sandbox_")
    lines = [f"class {shown} extends Handle {{"]
    if plain:
        lines += ["  " + " ".join(f"#{camel(each.name)};" for each in plain),
                  "  constructor(handle) {", "    super(handle);"]
        lines += [f"    this.#{camel(each.name)} = native.{prefix}_{each.name}(handle);" for each in plain]
        lines += ["  }"]
    lines += [f"  get {camel(each.name)}() {{ return this.#{camel(each.name)}; }}" for each in plain]
    for each in asking:
        given = camel(each.parameters[0].name)
        lines.append(f"  {camel(each.name)}({given}) {{ return native.{prefix}_{each.name}(external(this), "
                     f"{given}); }}")
    lines += [write_method(each) for each in calls if each.function.c_name not in names.BY_HAND]
    return lines + ["}", ""]


def write(interface: Interface) -> str:
    CLASSES.update(interface.handles)
    calls, getters = calls_of(interface), getters_of(interface)
    lines = [HEAD, "const errors = defineErrors(["]
    for item, number in interface.enums["sandbox_status"].items:
        if number != 0:
            lines.append(f"  [{number}, '{item}', '{class_of_status(item)}'],")
    lines += ["]);", ""]
    for struct in interface.handles:
        lines += write_class(interface, struct,
                             [each for each in calls if each.function.owner == struct],
                             [each for each in getters if each.owner == struct])
    lines += ["/* What index.js and its neighbours show in another form. */", "const raw = {"]
    lines += [write_raw(each) for each in calls if each.function.c_name in names.BY_HAND]
    lines += ["};", ""]
    loose = [each for each in calls if not each.owner and each.function.c_name not in names.BY_HAND]
    for each in loose:
        lines.append("function " + write_method(each).strip())
    exported = list(interface.handles.values()) + ["errors", "raw"] + [each.method for each in loose]
    lines += ["", "module.exports = {"] + [f"  {each}," for each in exported]
    lines += [f"  {camel(each.name)}: native.{each.name}()," for each in getters if not each.owner]
    return "\n".join(lines + ["};", ""])
