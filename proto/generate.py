"""Generates everything that is derived from the contracts.

The output is checked in: code beside each `.proto`, the descriptor image `tyrum/contracts/image.binpb`
(complete with its imports, so that any protobuf tool can read it) and `tyrum/contracts/digests.json` (what
both sides of a handshake compare). `--check` regenerates into a temporary directory and names every file that
differs, so the checked-in state is always the contracts' own.

A contract digest is the SHA-256 of the deterministically serialised FileDescriptorSet of the kind's service
file and every `tyrum/` file it imports, directly or not: files sorted by name, without source info,
`json_name` cleared. Comments and formatting do not change it; any change of a message, service or option
does.
"""

import argparse
import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from google.protobuf import descriptor_pb2
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent
IMAGE = Path("tyrum/contracts/image.binpb")
DIGESTS = Path("tyrum/contracts/digests.json")
GENERATED = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")

CONTROL_FILE = "tyrum/provider/v1/control.proto"
CONTROL_VERSION = 1


@dataclass(frozen=True, slots=True)
class Contract:
    """One provider kind's contract: the file of its service and its current version."""

    kind: str
    file: str
    major: int
    minor: int


CONTRACTS = (
    Contract(kind="isolation", file="tyrum/isolation/v1/isolation.proto", major=1, minor=0),
    Contract(kind="memory", file="tyrum/memory/v1alpha1/memory.proto", major=1, minor=0),
    Contract(kind="context", file="tyrum/context/v1alpha1/context.proto", major=1, minor=0),
)


class GenerateError(Exception):
    """The contracts could not be compiled; protoc has printed file, line and reason."""


def generate(out_dir: Path, *, source: Path = ROOT) -> None:
    """Write all generated files of the contracts under `source` below `out_dir`, in the same relative places.

    Raises:
        GenerateError: protoc refused a contract.
    """
    protos = sorted(path.relative_to(source).as_posix() for path in (source / "tyrum").rglob("*.proto"))
    image_file = out_dir / IMAGE
    image_file.parent.mkdir(parents=True, exist_ok=True)
    _compile(protos, source=source, out_dir=out_dir, image_file=image_file)

    image = descriptor_pb2.FileDescriptorSet.FromString(image_file.read_bytes())
    digests_file = out_dir / DIGESTS
    digests_file.parent.mkdir(parents=True, exist_ok=True)
    digests_file.write_text(json.dumps(digests(image), indent=2) + "\n", encoding="utf-8")


def _compile(protos: list[str], *, source: Path, out_dir: Path, image_file: Path) -> None:
    tools = Path(sys.executable).parent
    well_known = resources.files("grpc_tools") / "_proto"
    status = protoc.main(
        [
            "protoc",
            f"--proto_path={source}",
            f"--proto_path={well_known}",
            f"--plugin=protoc-gen-mypy={tools / 'protoc-gen-mypy'}",
            f"--plugin=protoc-gen-mypy_grpc={tools / 'protoc-gen-mypy_grpc'}",
            f"--python_out={out_dir}",
            f"--grpc_python_out={out_dir}",
            f"--mypy_out=quiet:{out_dir}",
            f"--mypy_grpc_out=quiet,only_async:{out_dir}",
            f"--descriptor_set_out={image_file}",
            "--include_imports",
            *protos,
        ]
    )
    if status != 0:
        raise GenerateError(f"protoc failed with status `{status}`")


def digests(image: descriptor_pb2.FileDescriptorSet) -> dict[str, object]:
    """Compute the digest of the control protocol and of every kind whose contract is in the image."""
    files = {file.name: file for file in image.file}
    result: dict[str, object] = {}
    if CONTROL_FILE in files:
        result["control"] = {"version": CONTROL_VERSION, "digest": _digest(CONTROL_FILE, files)}
    result["contracts"] = [
        {
            "kind": contract.kind,
            "major": contract.major,
            "minor": contract.minor,
            "package": files[contract.file].package,
            "digest": _digest(contract.file, files),
        }
        for contract in CONTRACTS
        if contract.file in files
    ]
    return result


def _digest(root: str, files: Mapping[str, descriptor_pb2.FileDescriptorProto]) -> str:
    reachable: set[str] = set()
    pending = [root]
    while pending:
        name = pending.pop()
        if name not in reachable and name.startswith("tyrum/"):
            reachable.add(name)
            pending.extend(files[name].dependency)

    closure = descriptor_pb2.FileDescriptorSet(file=[files[name] for name in sorted(reachable)])
    for file in closure.file:
        file.ClearField("source_code_info")
        for extension in file.extension:
            extension.ClearField("json_name")
        for message in file.message_type:
            _clear_json_names(message)
    return "sha256:" + hashlib.sha256(closure.SerializeToString(deterministic=True)).hexdigest()


def _clear_json_names(message: descriptor_pb2.DescriptorProto) -> None:
    for field in (*message.field, *message.extension):
        field.ClearField("json_name")
    for nested in message.nested_type:
        _clear_json_names(nested)


def generated_files(root: Path) -> set[Path]:
    """Find the generated files below `root`, as paths relative to it."""
    found = {path.relative_to(root) for pattern in GENERATED for path in (root / "tyrum").rglob(pattern)}
    return found | {path for path in (IMAGE, DIGESTS) if (root / path).is_file()}


def drift(committed: Path = ROOT) -> list[str]:
    """Compare the files below `committed` with what its contracts generate now.

    Returns:
        One line for each file that is missing, left over or different, in order; empty when nothing differs.
    """
    with tempfile.TemporaryDirectory(prefix="tyrum-proto-") as directory:
        fresh = Path(directory)
        generate(fresh, source=committed)
        expected, present = generated_files(fresh), generated_files(committed)
        problems = dict.fromkeys(expected - present, "is missing")
        problems |= dict.fromkeys(present - expected, "has no contract")
        problems |= {
            path: "differs from its contract"
            for path in expected & present
            if (fresh / path).read_bytes() != (committed / path).read_bytes()
        }
    return [f"proto/{path} {problem}" for path, problem in sorted(problems.items())]


def _write() -> None:
    with tempfile.TemporaryDirectory(prefix="tyrum-proto-") as directory:
        fresh = Path(directory)
        generate(fresh)
        wanted = generated_files(fresh)
        for path in generated_files(ROOT) - wanted:
            (ROOT / path).unlink()
        for path in wanted:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(fresh / path, ROOT / path)
    print(f"{len(wanted)} files generated")


def main() -> int:
    """Regenerate, or with `--check` report what regenerating would change (exit code 1)."""
    parser = argparse.ArgumentParser(description="Generate code, image and digests from the contracts.")
    parser.add_argument("--check", action="store_true", help="change nothing; fail when something differs")
    arguments = parser.parse_args()
    try:
        if not arguments.check:
            _write()
            return 0
        problems = drift()
    except GenerateError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    if problems:
        print("hint: make proto", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
