"""Generate code from the contract: ``python tools/gen.py`` writes it, ``--check`` only compares.

Two trees come out of ``proto/``::

    gen/python/wonder/v1/           for the server: protobuf messages with type stubs, gRPC servicers
    sdk/python/wonder_sdk/_proto/   for the SDK: betterproto2 messages, and typed stubs over grpc.aio

Everything is a function of the .proto files and the pinned generators, so a second run changes nothing.
Needs grpcio-tools, mypy-protobuf, betterproto2-compiler and ruff beside the Python that runs it; no network.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from gen_stubs import client_stubs
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
SERVER = Path("gen/python")
SDK = Path("sdk/python/wonder_sdk/_proto")
TREES = (SERVER, SDK)
ACCESS = "wonder/v1/access.proto"
"""The options of methods."""
_PACKAGE = '"""Generated from proto/ by tools/gen.py. Do not edit."""\n'


def main() -> int:
    """Exit code 0 if the generated code is (now) up to date, else 1."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--check", action="store_true", help="change nothing; fail if anything is stale")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        generate(fresh)
        stale = sorted(path for tree in TREES for path in differences(fresh / tree, ROOT / tree))
        if not check:
            for path in stale:
                update(fresh, path)
    for path in stale:
        print(f"{'stale' if check else 'wrote'}: {path}")
    if check and stale:
        print("The generated code does not match proto/. Run `make gen` and commit what it writes.")
        return 1
    return 0


def generate(out: Path) -> None:
    """Write both trees below ``out``."""
    server, sdk = out / SERVER, out / SDK
    server.mkdir(parents=True)
    sdk.mkdir(parents=True)
    (out / "ruff.toml").write_text("line-length = 110\n")
    descriptors, plain = out / "contract.binpb", out / "plain.binpb"
    protoc(
        out,
        f"-I{PROTO}",
        f"--descriptor_set_out={descriptors}",
        "--include_imports",
        "--include_source_info",
        f"--python_out={server}",
        f"--pyi_out={server}",
        f"--grpc_python_out={server}",
        f"--plugin=protoc-gen-mypy_grpc={beside_python('protoc-gen-mypy_grpc')}",
        f"--mypy_grpc_out=only_async:{server}",
    )
    contract = FileDescriptorSet.FromString(descriptors.read_bytes())
    plain.write_bytes(without_access(contract).SerializeToString())
    protoc(
        out,
        f"--descriptor_set_in={plain}",
        f"--plugin=protoc-gen-python_betterproto2={beside_python('protoc-gen-python_betterproto2')}",
        f"--python_betterproto2_out={sdk}",
        "--python_betterproto2_opt=client_generation=none",
        leave_out=(ACCESS,),
    )
    files = [file for file in contract.file if file.name.startswith("wonder/")]
    finish_server(server, files)
    (sdk / "stubs.py").write_text(client_stubs(files))
    subprocess.run([beside_python("ruff"), "format", "--quiet", str(sdk / "stubs.py")], check=True, cwd=out)
    (sdk / "__init__.py").write_text(_PACKAGE)
    for path in (*server.rglob("*_pb2.pyi"), *sdk.rglob("__init__.py"), sdk / "message_pool.py"):
        # The generators' own annotations are not complete enough for strict checking; their types are.
        path.write_text(f"# mypy: ignore-errors\n{path.read_text()}")


def without_access(contract: FileDescriptorSet) -> FileDescriptorSet:
    """Return the contract without the options of its methods.

    They are for the server. With them, the SDK would get a message class for each part of a descriptor, four
    times the classes that it has from google/protobuf.
    """
    plain = FileDescriptorSet()
    plain.CopyFrom(contract)
    for file in plain.file:
        kept = [name for name in file.dependency if name != ACCESS]
        if len(kept) < len(file.dependency):
            del file.dependency[:], file.public_dependency[:], file.weak_dependency[:]
            file.dependency.extend(kept)
        for method in (method for service in file.service for method in service.method):
            method.ClearField("options")
    return plain


def finish_server(server: Path, files: list[FileDescriptorProto]) -> None:
    """Make packages of the server's tree, and drop gRPC files without a service."""
    for file in files:
        grpc_file = server / file.name.replace(".proto", "_pb2_grpc.py")
        if not file.service:
            grpc_file.unlink()
            grpc_file.with_suffix(".pyi").unlink()
    for package in (server / "wonder", server / "wonder/v1"):
        (package / "__init__.py").write_text(_PACKAGE)
    (server / "wonder/py.typed").touch()


def protoc(folder: Path, *options: str, leave_out: tuple[str, ...] = ()) -> None:
    """Run the protocol compiler over all of ``proto/``, with the settings for ruff that ``folder`` holds."""
    names = sorted(str(path.relative_to(PROTO)) for path in PROTO.rglob("*.proto"))
    inputs = [name for name in names if name not in leave_out]
    command = [sys.executable, "-m", "grpc_tools.protoc", *options, *inputs]
    # The betterproto2 plugin finds ruff by PATH and its settings by the working directory.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    result = subprocess.run(
        command, check=False, cwd=folder, env=os.environ | {"PATH": path}, capture_output=True, text=True
    )
    if result.returncode:
        sys.exit(result.stderr or result.stdout)


def beside_python(name: str) -> str:
    """The command of that name in the running Python's own environment."""
    return str(Path(sys.executable).parent / name)


def differences(fresh: Path, kept: Path) -> list[Path]:
    """Files that are missing, superfluous or different in ``kept``, relative to the root."""
    wanted = {path.relative_to(fresh): path.read_bytes() for path in sources(fresh)}
    found = {path.relative_to(kept): path.read_bytes() for path in sources(kept)}
    changed = [name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)]
    return [kept.relative_to(ROOT) / name for name in changed]


def sources(tree: Path) -> list[Path]:
    """All files of a tree but Python's own by-products."""
    return [path for path in tree.rglob("*") if path.is_file() and "__pycache__" not in path.parts]


def update(fresh: Path, path: Path) -> None:
    """Bring one file of the root to what is in ``fresh``, or remove it if it is not there."""
    target = ROOT / path
    if (fresh / path).exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((fresh / path).read_bytes())
    else:
        target.unlink()


if __name__ == "__main__":
    sys.exit(main())
