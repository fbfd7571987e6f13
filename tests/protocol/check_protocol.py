#!/usr/bin/env python3
"""The agent protocol only grows.

baseline/*.txt holds, for each released protocol version, one line a field, method and enum value.
Whatever stands there must be in today's .proto files unchanged, so that a newer library can open
an older agent and the other way round. Run with --write NAME to store today's protocol.
"""
import pathlib
import subprocess
import sys
import tempfile

from google.protobuf import descriptor_pb2

HERE = pathlib.Path(__file__).resolve().parent
PROTO = HERE.parent.parent / "lib" / "agent" / "proto"


def message_lines(prefix, message):
    name = f"{prefix}.{message.name}"
    yield f"message {name}"
    for field in message.field:
        kind = field.type_name or descriptor_pb2.FieldDescriptorProto.Type.Name(field.type)
        label = descriptor_pb2.FieldDescriptorProto.Label.Name(field.label)
        yield f"field {name} {field.number} {field.name} {kind} {label}"
    for inner in message.nested_type:
        yield from message_lines(name, inner)
    for enum in message.enum_type:
        yield from enum_lines(name, enum)


def enum_lines(prefix, enum):
    for value in enum.value:
        yield f"enum {prefix}.{enum.name} {value.number} {value.name}"


def protocol_lines():
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "all.pb"
        files = sorted(PROTO.glob("sandbox/v1/*.proto"))
        subprocess.run(["protoc", f"-I{PROTO}/sandbox/v1", f"--descriptor_set_out={out}", *map(str, files)],
                       check=True)
        described = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    for file in described.file:
        for message in file.message_type:
            yield from message_lines(file.package, message)
        for enum in file.enum_type:
            yield from enum_lines(file.package, enum)
        for service in file.service:
            for method in service.method:
                yield (f"method {file.package}.{service.name}/{method.name} "
                       f"{'stream ' if method.client_streaming else ''}{method.input_type} -> "
                       f"{'stream ' if method.server_streaming else ''}{method.output_type}")


def main():
    today = sorted(protocol_lines())
    if sys.argv[1:2] == ["--write"]:
        (HERE / "baseline" / f"{sys.argv[2]}.txt").write_text("\n".join(today) + "\n")
        return 0
    failed = 0
    known = set(today)
    for baseline in sorted((HERE / "baseline").glob("*.txt")):
        for line in baseline.read_text().splitlines():
            if line not in known:
                print(f"{baseline.stem}: gone or changed: {line}")
                failed = 1
    print("the protocol has only grown" if not failed else "older peers would misunderstand")
    return failed


if __name__ == "__main__":
    sys.exit(main())
