"""The exported contracts generate code that compiles without warnings, in the languages that are installed.

Each directory beside this file is a project of one language with its generators pinned; packages come through
the language's own client from its registry, and stay in its own cache.
"""

import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from grpc_tools import protoc

from tests.support import toolchain
from tests.support.gateway import TYRUM

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tyrum-toolchains"

RESERVED = frozenset(
    {
        *("class", "descriptor", "default", "hash_code", "to_string", "notify", "wait", "swap", "clear"),
        *("all_fields", "default_instance_for_type", "descriptor_for_type", "initialization_error_string"),
        *("parser_for_type", "serialized_size", "cached_size", "unknown_fields", "is_initialized"),
        *(
            "constructor",
            "prototype",
            "to_json",
            "get_type",
            "types",
            "marshal",
            "unmarshal",
            "reset",
            "string",
        ),
        *("major_version", "self", "super", "crate"),
    }
)
"""Fields that generated code of Java, C++, C#, Go, Rust or JavaScript renames, or that break it."""
TAKEN = frozenset(
    {"Descriptor", "Types", "Message", "Object", "Partial", "Record", "Option", "Result", "Error"}
)
"""Messages that hide a type which generated code of one of them uses."""


@pytest.fixture(scope="module")
def contracts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `tyrum proto export` writes."""
    directory = tmp_path_factory.mktemp("contracts") / "export"
    toolchain.run(TYRUM, "proto", "export", directory, cwd=directory.parent)
    return directory


@pytest.fixture(scope="module")
def image(contracts: Path) -> descriptor_pb2.FileDescriptorSet:
    """The exported contracts, compiled."""
    file = contracts.parent / "set.binpb"
    compile_with(contracts, f"--descriptor_set_out={file}", "--include_imports")
    return descriptor_pb2.FileDescriptorSet.FromString(file.read_bytes())


def exported(contracts: Path, package: str = "") -> list[str]:
    """List the files below a package, relative to the export."""
    return sorted(path.relative_to(contracts).as_posix() for path in (contracts / package).rglob("*.proto"))


def compile_with(contracts: Path, *options: str, package: str = "") -> None:
    """Run the compiler that the project pins, with another language's plugin."""
    well_known = resources.files("grpc_tools") / "_proto"
    words = ["protoc", f"-I{contracts}", f"-I{well_known}", *options, *exported(contracts, package)]
    assert protoc.main(words) == 0


def messages(file: FileDescriptorProto) -> list[DescriptorProto]:
    """List the messages of a file, nested ones too."""
    found = list(file.message_type)
    for message in found:
        found += message.nested_type
    return found


def test_no_name_is_one_that_a_language_cannot_take(image: descriptor_pb2.FileDescriptorSet) -> None:
    """No message or field has a name that collides with what generated code holds anyway."""
    own = [file for file in image.file if file.package.startswith("tyrum.")]
    assert len(own) > 10
    for file in own:
        for message in messages(file):
            assert message.name not in TAKEN, f"{file.name}: {message.name}"
            names = {field.name for field in message.field}
            assert not names & RESERVED, f"{file.name}: {message.name}"
            derived = {f"{name}_{suffix}" for name in names for suffix in ("bytes", "count", "list", "case")}
            assert not names & derived, (
                f"{file.name}: {message.name}: accessors of one field, name of another"
            )


def test_every_file_names_its_packages(image: descriptor_pb2.FileDescriptorSet) -> None:
    """Go, Java and C# get the package of each file from its options, the same for a whole package."""
    for file in image.file:
        if file.package.startswith("tyrum."):
            _, name, version = file.package.split(".")
            assert file.options.go_package == f"tyrum/{name}/{version};{name}{version}"
            assert file.options.java_package == f"dev.{file.package}"
            assert file.options.java_multiple_files
            assert file.options.java_outer_classname.endswith("Proto")
            assert file.options.csharp_namespace.lower() == file.package


@pytest.mark.toolchain
@pytest.mark.slow
@pytest.mark.timeout(900)
class TestCompiled:
    """Language by language; what is not installed is skipped by name."""

    def test_go(self, contracts: Path, tmp_path: Path) -> None:
        """protoc-gen-go and protoc-gen-go-grpc; `go vet` has nothing to say."""
        toolchain.installed("go")
        project = shutil.copytree(HERE / "go", tmp_path / "go")
        (project / "bin").mkdir()
        toolchain.run("go", "build", "-o", "bin/", "tool", cwd=project)
        for plugin in ("go", "go-grpc"):
            compile_with(
                contracts,
                f"--plugin=protoc-gen-{plugin}={project}/bin/protoc-gen-{plugin}",
                f"--{plugin}_out={project}",
                f"--{plugin}_opt=module=tyrum",
                package="tyrum",  # google.rpc is google.golang.org/genproto
            )
        assert toolchain.run("go", "vet", "./...", cwd=project).strip() == ""

    def test_java(self, contracts: Path, tmp_path: Path) -> None:
        """Protoc and grpc-java; `javac -Xlint:all` has nothing to say."""
        toolchain.installed("mvn", "javac")
        command = ("mvn", "--batch-mode", "--quiet", "--file", str(HERE / "java/pom.xml"))
        toolchain.run(
            *command, f"-Dcontracts={contracts}", f"-Dbuild={tmp_path}/target", "compile", cwd=tmp_path
        )
        assert len(list((tmp_path / "target/classes").rglob("*Grpc.class"))) > 10

    def test_rust(self, contracts: Path, image: descriptor_pb2.FileDescriptorSet) -> None:
        """Prost and tonic, with warnings denied."""
        toolchain.installed("cargo")
        assert image.file
        toolchain.run(
            *("cargo", "check", "--quiet", "--locked", "--manifest-path", HERE / "rust/Cargo.toml"),
            cwd=contracts,
            environment={
                "CARGO_TARGET_DIR": str(CACHE / "rust"),
                "TYRUM_DESCRIPTORS": str(contracts.parent / "set.binpb"),
            },
        )

    def test_cpp(self, contracts: Path, tmp_path: Path) -> None:
        """The system's protoc and libprotobuf; `g++ -Wall -Wextra` has nothing to say."""
        toolchain.installed("g++", "protoc")
        if not Path("/usr/include/google/protobuf/message.h").is_file():
            pytest.skip("not installed: libprotobuf-dev")
        toolchain.run(
            "protoc", f"-I{contracts}", f"--cpp_out={tmp_path}", *exported(contracts), cwd=contracts
        )
        options = ("-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I.")
        with ThreadPoolExecutor(2) as pool:
            for _ in pool.map(
                lambda file: toolchain.run("g++", *options, file, cwd=tmp_path), tmp_path.rglob("*.pb.cc")
            ):
                pass

    def test_node(self, contracts: Path, tmp_path: Path) -> None:
        """TypeScript of protoc-gen-es and ts-proto passes `tsc`, and the loader takes every file."""
        toolchain.installed("node", "npm")
        project = shutil.copytree(HERE / "node", tmp_path / "node")
        toolchain.run("npm", "ci", "--ignore-scripts", "--prefer-offline", "--loglevel=error", cwd=project)
        for out, plugin, option in (
            ("es", "es", "target=ts"),
            ("ts-proto", "ts_proto", "outputServices=grpc-js"),
        ):
            (project / out).mkdir()
            compile_with(
                contracts,
                f"--plugin=protoc-gen-{plugin}={project}/node_modules/.bin/protoc-gen-{plugin}",
                f"--{plugin}_out={project / out}",
                f"--{plugin}_opt={option}",
            )
        assert toolchain.run("node_modules/.bin/tsc", cwd=project).strip() == ""
        loaded = toolchain.run("node", "load.mjs", contracts, *exported(contracts), cwd=project)
        assert int(re.match(r"\d+", loaded)[0]) > 10  # type: ignore[index]

    def test_csharp(self, contracts: Path, tmp_path: Path) -> None:
        """Grpc.Tools, with warnings as errors."""
        toolchain.installed("dotnet")
        project = shutil.copytree(HERE / "csharp", tmp_path / "csharp")
        major = toolchain.run("dotnet", "--version", cwd=project).partition(".")[0]
        toolchain.run(
            *("dotnet", "build", "--nologo", f"-p:TargetFramework=net{major}.0", f"-p:Contracts={contracts}"),
            cwd=project,
            environment={"DOTNET_CLI_TELEMETRY_OPTOUT": "1", "DOTNET_NOLOGO": "1"},
        )
