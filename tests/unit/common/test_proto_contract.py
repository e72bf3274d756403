"""What is on the wire stays as it is: names, numbers and types of the protocol are frozen.

After a deliberate, compatible change run

    python tests/unit/common/test_proto_contract.py > tests/unit/common/proto_contract.txt

and read the difference: it should only add lines.
"""

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from fedecado.v1 import admin_pb2, enrol_pb2, session_pb2, transfer_pb2

PROTO = Path(__file__).resolve().parents[3] / "proto"
MODULES = (transfer_pb2, session_pb2, admin_pb2, enrol_pb2)
GOLDEN = Path(__file__).with_name("proto_contract.txt")
ENVELOPES = (session_pb2.WorkerMessage, session_pb2.CoordinatorMessage, admin_pb2.GetModelResponse)


def summary() -> list[str]:
    """One line per field, enum value and method of the protocol."""
    return [line for module in MODULES for line in of_file(module.DESCRIPTOR)]


def of_file(file: FileDescriptor) -> Iterator[str]:
    for enum in file.enum_types_by_name.values():
        yield from of_enum(enum)
    for message in file.message_types_by_name.values():
        yield from of_message(message)
    for service in file.services_by_name.values():
        for method in service.methods:
            sends = "stream " * method.client_streaming + method.input_type.full_name
            returns = "stream " * method.server_streaming + method.output_type.full_name
            yield f"{method.full_name} ({sends}) -> ({returns})"


def of_enum(enum: EnumDescriptor) -> Iterator[str]:
    for value in enum.values:
        yield f"{enum.full_name}.{value.name} = {value.number}"


def of_message(message: Descriptor) -> Iterator[str]:
    yield message.full_name
    for field in message.fields:
        yield f"{field.full_name} = {field.number} {type_of(field)}"
    for enum in message.enum_types:
        yield from of_enum(enum)
    for nested in message.nested_types:
        yield from of_message(nested)


def type_of(field: FieldDescriptor) -> str:
    """As a .proto file says it, with its oneof or `optional`."""
    referred = field.message_type or field.enum_type
    kind = FieldDescriptorProto.Type.Name(FieldDescriptorProto.Type.ValueType(field.type))
    name = referred.full_name if referred else kind.removeprefix("TYPE_").lower()
    group = field.containing_oneof
    if field.is_repeated:
        return f"repeated {name}"
    if group is None:
        return name
    optional = group.name == f"_{field.name}"
    return f"optional {name}" if optional else f"{name} in {group.name}"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    pytest.importorskip("grpc_tools", reason="grpcio-tools is not installed: pip install 'fedecado[dev]'")
    spec = importlib.util.spec_from_file_location("proto_generate", PROTO / "generate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_names_numbers_and_types_are_as_frozen() -> None:
    assert summary() == GOLDEN.read_text("utf-8").splitlines(), f"see {Path(__file__).name}"


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_every_envelope_numbers_chunk_and_trailer_alike(envelope: type[session_pb2.WorkerMessage]) -> None:
    """Frames that are encoded once fit every stream because of this."""
    fields = envelope.DESCRIPTOR.fields_by_name
    assert (fields["chunk"].number, fields["trailer"].number) == (1, 2)


def test_committed_code_is_what_the_generator_writes(
    generator: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    assert generator.main(["--check"]) == 0, capfd.readouterr().err


def test_the_check_names_files_that_differ_are_missing_or_left_over(generator: ModuleType) -> None:
    committed = {"a_pb2.py": b"one\ntwo\n", "old_pb2.py": b"", "same_pb2.py": b"x"}
    fresh = {"a_pb2.py": b"one\n2\n", "new_pb2.py": b"", "same_pb2.py": b"x"}
    assert generator.differences(committed, fresh) == [
        "differs    a_pb2.py (line 2: 'two', generated '2')",
        "missing    new_pb2.py",
        "left over  old_pb2.py",
    ]


def test_buf_lint_finds_nothing() -> None:
    buf = shutil.which("buf", path=str(Path(sys.executable).parent)) or shutil.which("buf")
    if buf is None:
        pytest.skip("buf is not installed: pip install 'fedecado[dev]'")
    result = subprocess.run([buf, "lint", str(PROTO)], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout + result.stderr) == (0, "")


if __name__ == "__main__":
    print("\n".join(summary()))
