"""Generates the Python code of the protocol from proto/**/*.proto.

    python proto/generate.py            write it into the tree
    python proto/generate.py --check    fail if the tree holds anything else

The output depends on the versions of the generators, and the generated code refuses a runtime
older than they are; the `dev` extra therefore pins them.
"""

import argparse
import importlib.metadata
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent
GENERATED = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")
GENERATORS = ("grpcio-tools", "mypy-protobuf")


def generate(out: Path) -> None:
    """Write the code of every .proto file below `out`."""
    import grpc_tools  # type: ignore[import-untyped]  # it ships no type information

    includes = Path(grpc_tools.__file__).parent / "_proto"
    sources = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.proto"))
    services = [source for source in sources if "\nservice " in (ROOT / source).read_text("utf-8")]
    messages = [f"--python_out={out}", f"--mypy_out=quiet:{out}"]
    stubs = [f"--grpc_python_out={out}", f"--mypy_grpc_out=quiet:{out}"]
    for options, files in ((messages, sources), (stubs, services)):
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT}", f"-I{includes}", *options, *files]
        subprocess.run(command, check=True, env=_environment())  # noqa: S603  # all arguments are ours


def _environment() -> dict[str, str]:
    """protoc finds its mypy plugins beside this interpreter, also when no environment is active."""
    scripts = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": os.pathsep.join((scripts, os.environ.get("PATH", "")))}


def generated_files(root: Path) -> dict[str, bytes]:
    """Generated code below `root`, by relative path."""
    paths = (path for pattern in GENERATED for path in root.rglob(pattern))
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(paths)}


def differences(committed: dict[str, bytes], fresh: dict[str, bytes]) -> list[str]:
    """One line per file that is missing, left over or different."""
    report = []
    for name in sorted(committed.keys() | fresh.keys()):
        if name not in committed:
            report.append(f"missing    {name}")
        elif name not in fresh:
            report.append(f"left over  {name}")
        elif committed[name] != fresh[name]:
            report.append(f"differs    {name} ({_first_difference(committed[name], fresh[name])})")
    return report


def _first_difference(old: bytes, new: bytes) -> str:
    old_lines, new_lines = (text.decode(errors="replace").splitlines() for text in (old, new))
    same = 0
    for old_line, new_line in zip(old_lines, new_lines, strict=False):
        if old_line != new_line:
            return f"line {same + 1}: {old_line[:60]!r}, generated {new_line[:60]!r}"
        same += 1
    return f"from line {same + 1}: {len(old_lines)} lines, generated {len(new_lines)}"


def write() -> int:
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        fresh = generated_files(Path(folder))
    for name in generated_files(ROOT).keys() - fresh.keys():
        (ROOT / name).unlink()
    for name, content in fresh.items():
        (ROOT / name).write_bytes(content)
    return 0


def check() -> int:
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        report = differences(generated_files(ROOT), generated_files(Path(folder)))
    if not report:
        return 0
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in GENERATORS)
    sys.stderr.write("\n".join(["generated code is out of date:", *report]) + "\n")
    sys.stderr.write(f"generated with {versions}; run `python proto/generate.py` and commit the result\n")
    return 1


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Generate the Python code of the protocol.")
    parser.add_argument("--check", action="store_true", help="only compare with what is in the tree")
    return check() if parser.parse_args(arguments).check else write()


if __name__ == "__main__":
    sys.exit(main())
