"""Connections of clients: settings of the environment, and servers that answer slowly."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from tests.paths import ROOT
from tests.sdk.fake_coordinator import RUN, FakeCoordinator
from tests.sdk.fake_server import serving
from wonder_sdk import Client, UnavailableError, Worker, cli, environment, errors, sync
from wonder_sdk.cli.shared import connection
from wonder_sdk.transport import channel
from wonder_server.rpc.server.server import RpcServer
from wonder_server.settings import Settings


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPC_VERBOSITY", "NONE")


async def test_omitted_arguments_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WONDER_SERVER", "WONDER_TOKEN", "WONDER_CA"):
        monkeypatch.setenv(name, "")
    assert environment.target() == "127.0.0.1:50051"
    monkeypatch.setenv("WONDER_SERVER", "127.0.0.1:7")
    monkeypatch.setenv("WONDER_TOKEN", "secret")
    async with Client() as client, Client("127.0.0.1:8") as other:
        assert (client.target, other.target) == ("127.0.0.1:7", "127.0.0.1:8")
    with await asyncio.to_thread(sync.Client) as blocking:
        assert blocking.target == "127.0.0.1:7"
    assert (Worker("w").address, Worker("w", address="127.0.0.1:8").address) == ("127.0.0.1:7", "127.0.0.1:8")
    assert channel.Credentials().metadata == (("authorization", "Bearer secret"),)
    assert channel.Credentials(token="mine").metadata == (("authorization", "Bearer mine"),)
    assert channel.Credentials(token="").metadata == ()
    monkeypatch.setenv("WONDER_CA", "/nowhere/ca.pem")
    with pytest.raises(OSError, match=r"ca\.pem"):
        channel.Credentials().open_channel("127.0.0.1:7")
    with pytest.raises(OSError, match=r"ca\.pem"):
        Client()


@asynccontextmanager
async def slow(address: str, seconds: float) -> AsyncIterator[str]:
    """Yield the address of a proxy that accepts connections at once and forwards data after ``seconds``."""

    async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                sink.write(data)
        sink.close()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(seconds)
        host, port = address.split(":")
        there = await asyncio.open_connection(host, int(port))
        await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))

    server = await asyncio.start_server(pass_on, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def test_a_client_waits_for_a_slow_server() -> None:
    async with (
        serving(coordinator=FakeCoordinator()) as address,
        slow(address, 1.0) as busy,
        Client(busy) as client,
    ):
        assert (await client.get_run(RUN)).id == RUN


async def test_a_server_that_does_not_answer_is_not_reported_as_absent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [(name, 300 if name == "grpc.min_reconnect_backoff_ms" else each) for name, each in OPTIONS]
    monkeypatch.setattr(channel, "_OPTIONS", options)
    with socket.create_server(("127.0.0.1", 0)) as listening:  # accepts connections and never answers
        silent = f"127.0.0.1:{listening.getsockname()[1]}"
        assert await asyncio.to_thread(cli.main, ["runs", "show", "run_1", "--server", silent]) == 1
    output = capsys.readouterr().err
    assert output.startswith(f"wonder: {silent} did not answer within {errors.CONNECT_SECONDS:g} s")
    assert "wonder serve" not in output
    assert dict(OPTIONS)["grpc.min_reconnect_backoff_ms"] == errors.CONNECT_SECONDS * 1000


OPTIONS = channel._OPTIONS


def test_the_traceback_of_a_call_shows_the_caller_and_few_frames() -> None:
    with sync.Client("127.0.0.1:1") as client, pytest.raises(UnavailableError) as problem:
        client.get_run("run_1")
    shown = "".join(traceback.format_exception(problem.value))
    assert "client.get_run" in shown and "asyncio" not in shown and len(problem.traceback) <= 3
    with sync.Client("127.0.0.1:1") as client, pytest.raises(UnavailableError) as problem:
        next(client.list_runs())
    assert len(problem.traceback) <= 3


async def test_an_absent_server_is_unavailable_and_not_connected() -> None:
    async with Client("127.0.0.1:1") as client:
        with pytest.raises(UnavailableError) as problem:
            await client.get_run("run_1")
    assert problem.value.not_connected and not problem.value.timed_out
    assert problem.value.status is grpc.StatusCode.UNAVAILABLE


async def test_a_server_with_a_self_signed_certificate_is_reached_as_documented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate, key, tokens = tmp_path / "server.pem", tmp_path / "server.key", tmp_path / "tokens.txt"
    names = ["-subj", "/CN=wonder", "-addext", "subjectAltName=IP:127.0.0.1"]
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    await asyncio.to_thread(
        subprocess.run, ["openssl", "req", *kind, *names, *files], check=True, capture_output=True
    )
    tokens.write_text("a-token-of-sixteen ada\n")
    settings = Settings(
        listen="127.0.0.1:0", tls_cert=certificate, tls_key=key, auth_tokens_file=tokens, admin="ada"
    )
    server = RpcServer(settings)
    address = server.bind()
    await server.start({})
    page = (ROOT / "docs" / "operating.md").read_text()
    [line] = [line for line in page.splitlines() if line.startswith("WONDER_SERVER=")]
    *variables, _, command = line.split()
    given = dict(each.split("=") for each in variables)
    assert list(given) == ["WONDER_SERVER", "WONDER_CA", "WONDER_TOKEN"]
    for name, value in zip(given, (address, str(certificate), "a-token-of-sixteen"), strict=True):
        monkeypatch.setenv(name, value)
    assert await asyncio.to_thread(cli.main, [command]) == 0
    assert capsys.readouterr().out.endswith(f"{address}: serving\n")
    monkeypatch.delenv("WONDER_CA")
    assert await asyncio.to_thread(cli.main, [command]) == 1
    await server.stop(0)


async def test_a_rejected_certificate_is_not_an_absent_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("server", "other"):
        kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        names = ["-subj", "/CN=wonder", "-addext", "subjectAltName=DNS:wonder.example"]
        files = ["-keyout", str(tmp_path / f"{name}.key"), "-out", str(tmp_path / f"{name}.pem")]
        await asyncio.to_thread(
            subprocess.run, ["openssl", "req", *kind, *names, *files], check=True, capture_output=True
        )
    (tmp_path / "broken.pem").write_text("-----BEGIN CERTIFICATE-----\nhello\n-----END CERTIFICATE-----\n")
    (tmp_path / "notes.txt").write_text("not a certificate")
    server = RpcServer(
        Settings(listen="127.0.0.1:0", tls_cert=tmp_path / "server.pem", tls_key=tmp_path / "server.key")
    )
    address = server.bind()
    await server.start({})
    said = []
    for name in ("server.pem", "other.pem", "broken.pem", "notes.txt"):
        flags = ["--server", address, "--ca", str(tmp_path / name)]
        assert await asyncio.to_thread(cli.main, ["health", *flags]) == 1
        said.append(capsys.readouterr().err)
    await server.stop(0)
    assert said == [
        f"wonder: The certificate of {address} is for another name. Connect by a name or address that the "
        "certificate has.\n",
        f"wonder: The certificate of {address} is not signed by the certificate authority that WONDER_CA or "
        "tls_root names; without them, by none that this machine trusts.\n",
        f"wonder: The certificate authority for {address} cannot be used. Check the PEM file that WONDER_CA "
        "or tls_root names.\n",
        f"wonder: {tmp_path / 'notes.txt'} contains no certificate in PEM form (-----BEGIN CERTIFICATE-----)."
        " Name the file of the server's certificate authority (WONDER_CA, --ca, tls_root).\n",
    ]


async def test_an_immediate_disconnect_gets_a_tls_hint(capsys: pytest.CaptureFixture[str]) -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert await asyncio.to_thread(cli.main, ["health", "--server", address]) == 1
    assert capsys.readouterr().err.startswith(
        f"wonder: {address} closes the connection at once. If the server uses TLS, set "
    )


def test_an_unknown_flag_shows_the_usage_of_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(["memory", "forget", "mem_1", "--force"])
    output = capsys.readouterr().err
    assert left.value.code == 2 and output.startswith("usage: wonder memory forget [-h]")
    assert output.endswith("wonder memory forget: error: unrecognized arguments: --force\n")


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["serv"], "; did you mean serve?"),
        (["project", "alow", "shop"], "; did you mean allow?"),
        (["chat", "--mesage", "hi"], "; --mesage does not exist, did you mean --message?"),
        (["apply", "--fil=x"], "required: -f/--file; --fil does not exist, did you mean --file?"),
        (["health", "--servr=x"], "unrecognized arguments: --servr=x; did you mean --server?"),
        (["chat", "--mess", "hi"], "; --mess does not exist, did you mean --message?"),
        (["chat", "--frobnicate"], "arguments: --frobnicate"),
    ],
)
def test_a_misspelt_argument_gets_a_hint(
    argv: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(argv)
    assert left.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(hint)


def test_a_long_usage_does_not_hide_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["serve", "--listn", "127.0.0.1:0"])
    assert capsys.readouterr().err == (
        "wonder serve: error: unrecognized arguments: --listn 127.0.0.1:0; did you mean --listen?\n"
        "Use `wonder serve --help` for the options.\n"
    )


@pytest.mark.parametrize(
    "address", ["foo", "localhost", "https://127.0.0.1:50051", "127.0.0.1:52010x", "h:0", "h:70000", "::1:5"]
)
def test_an_invalid_address_is_reported_before_any_call(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["health", "--server", address]) == 2
    assert capsys.readouterr().err == (
        f"wonder: '{address}' is not a server address. Use host:port, such as 127.0.0.1:50051 "
        "(--server or WONDER_SERVER).\n"
    )


@pytest.mark.parametrize(
    "address", ["localhost:1", "[::1]:50051", "a-b.example:443", "unix:/tmp/s", "dns:///a:1"]
)
def test_valid_addresses_pass(address: str) -> None:
    assert connection.is_address(address)


@pytest.mark.parametrize("token", ["wk_…", "a token\n", "token\x00", "tökén"])
def test_a_token_that_no_call_can_send_is_refused_without_showing_it(token: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="Copy the whole token") as caught:
        _ = channel.Credentials(token=token).metadata
    assert token not in str(caught.value)


@pytest.mark.parametrize(("token", "sent"), [("abc", "Bearer abc"), ("", "")])
def test_a_token_is_sent_as_it_is(token: str, sent: str) -> None:
    assert "".join(value for _, value in channel.Credentials(token=token).metadata) == sent
