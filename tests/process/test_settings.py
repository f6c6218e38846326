"""Settings are read, checked and documented from one table."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pytest

from tests.paths import ROOT
from wonder_server.serve import register
from wonder_server.settings import TABLE, Group, Settings, SettingsError, load, unknown_variables
from wonder_server.settings.kinds import McpServer

PAGE = ROOT / "docs" / "settings.md"


def test_every_setting_is_documented_with_its_variable_default_and_purpose() -> None:
    rows = {
        row[1]: row
        for row in (re.split(r"\s*\|\s*", line) for line in PAGE.read_text().splitlines())
        if len(row) > 5
    }
    for setting in TABLE:
        row = rows[f"`{setting.name}`"]
        assert row[2] == f"`{setting.env}`"
        assert row[3] == (f"`{setting.default_text}`" if setting.default_text else "none")
        assert row[5] == setting.help


def test_the_document_has_a_section_for_each_group() -> None:
    sections = PAGE.read_text().split("\n## ")[1:]
    assert [section.partition("\n")[0] for section in sections] == [group.value for group in Group]
    for group, section in zip(Group, sections, strict=True):
        names = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
        assert names == [row.name for row in TABLE if row.group is group] != []


def test_help_lists_the_flags_of_a_group_below_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    register(parser.add_subparsers())
    with pytest.raises(SystemExit):
        parser.parse_args(["serve", "--help"])
    sections = re.split(r"^([A-Z][\w ]+):$", capsys.readouterr().out, flags=re.MULTILINE)
    shown = dict(zip(sections[1::2], sections[2::2], strict=True))
    for group in Group:
        flags = re.findall(r"^  (--[\w-]+)", shown[group.value], re.MULTILINE)
        assert flags == [row.flag for row in TABLE if row.group is group and row.flag]


def test_a_variable_has_the_name_of_its_setting_except_the_keys_of_providers() -> None:
    others = {row.env for row in TABLE if row.env != f"WONDER_{row.name.upper()}"}
    assert others == {"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"}


def test_a_flag_overrides_the_environment_then_the_file_then_the_default(tmp_path: Path) -> None:
    file = tmp_path / "wonder.toml"
    file.write_text('listen = "127.0.0.1:1"\nshard_count = 2\nlog_level = "error"\n')
    environ = {"WONDER_CONFIG": str(file), "WONDER_LISTEN": "127.0.0.1:2", "WONDER_SHARD_COUNT": "3"}
    settings = load({"listen": "127.0.0.1:3", "data_dir": None}, environ)
    assert (settings.listen, settings.shard_count, settings.log_level) == ("127.0.0.1:3", 3, "error")
    assert settings.data_dir == Path("wonder-data").resolve()


@pytest.mark.parametrize("flag", [None, "wonder-data", "./below/../wonder-data"])
def test_the_data_folder_is_absolute_in_any_notation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    data = load({"data_dir": flag}, {}).data_dir
    monkeypatch.chdir("/")
    assert data == tmp_path.resolve() / "wonder-data"


def test_a_relative_data_folder_needs_a_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(SettingsError, match="data_dir: 'wonder-data' cannot be resolved"):
        load({}, {})
    assert load({"data_dir": str(tmp_path)}, {}).data_dir == tmp_path.resolve()


@pytest.mark.parametrize(
    ("flags", "environ", "said"),
    [
        ({"listen": "nowhere"}, {}, "listen: expected host:port.*'nowhere'.*the flag --listen"),
        ({"listen": "host:70000"}, {}, "listen: expected host:port"),
        (
            {},
            {"WONDER_SHARD_COUNT": "many"},
            "shard_count: expected a whole number.*variable WONDER_SHARD_COUNT",
        ),
        ({}, {"WONDER_SHARD_COUNT": "33"}, "shard_count: expected a number from 1 to 32"),
        ({}, {"WONDER_INSECURE": "maybe"}, "insecure: expected true or false"),
        ({}, {"WONDER_LOG_FORMAT": "xml"}, "log_format: expected one of auto, json, console"),
        ({"tls_cert": "a.pem"}, {}, "tls_cert and tls_key belong together"),
        (
            {},
            {"WONDER_S3_ENDPOINT": "s3.local:9000"},
            "s3_endpoint: expected a URL of scheme.*WONDER_S3_ENDPOINT",
        ),
        ({}, {"WONDER_S3_ENDPOINT": "http://a:b@s3.local"}, "s3_endpoint: expected a URL of scheme"),
        ({}, {"WONDER_S3_ENDPOINT": "http://s3.local"}, "s3_endpoint needs s3_access_key and s3_secret_key"),
        ({}, {"WONDER_S3_BUCKET": "../x"}, "s3_bucket: expected 3 to 63 of"),
        (
            {},
            {"WONDER_SANDBOX_READ_ONLY_PATHS": "/opt/tools:tools"},
            "sandbox_read_only_paths: expected absolute paths",
        ),
        ({"config": "/nowhere/at/all.toml"}, {}, "cannot be read"),
    ],
)
def test_a_bad_value_is_refused_with_its_key_and_source(
    flags: dict[str, object], environ: dict[str, str], said: str
) -> None:
    with pytest.raises(SettingsError, match=said):
        load(flags, environ)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('listn = "x"', "sets listn, which is no setting there. Did you mean listen?"),
        ('config = "other.toml"', "sets config, which is no setting there."),
        ("shard_count = true", "shard_count: expected a whole number"),
        ("listen = 5", "listen: expected a text, not 5 .from the config file"),
        ("[server]\nx = 1", "sets server"),
        ("not toml", "is not TOML"),
    ],
)
def test_a_bad_config_file_is_refused_by_key(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "wonder.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=said):
        load({"config": str(file)}, {})


def test_secrets_are_never_shown(tmp_path: Path) -> None:
    settings = load({}, {"OPENAI_API_KEY": "sk-hidden"})
    assert settings.openai_api_key == "sk-hidden" and "sk-hidden" not in repr(settings)
    file = tmp_path / "wonder.toml"
    file.write_text('openai_api_key = ["sk-hidden"]')
    with pytest.raises(SettingsError) as problem:
        load({"config": str(file)}, {})
    assert "sk-hidden" not in str(problem.value)
    assert all(row.flag == "" for row in TABLE if row.secret)


@pytest.mark.parametrize(
    ("listen", "loopback"),
    [
        ("127.0.0.1:1", True),
        ("127.8.8.8:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("example.org:1", False),
    ],
)
def test_only_loopback_addresses_count_as_loopback(listen: str, loopback: bool) -> None:
    assert Settings(listen=listen).is_loopback is loopback


def test_the_model_is_the_configured_one_or_the_first_with_a_key_or_offline() -> None:
    assert load({}, {}).model_choice == "offline"
    assert load({}, {"GEMINI_API_KEY": "k"}).model_choice == "gemini"
    assert load({"default_model": "openai/x"}, {"GEMINI_API_KEY": "k"}).model_choice == "openai/x"


def test_a_misspelled_variable_is_reported_with_the_closest_setting() -> None:
    assert unknown_variables({"WONDER_LISTN": "", "WONDER_TOKEN": "", "HOME": ""}) == {
        "WONDER_LISTN": "WONDER_LISTEN"
    }


def test_mcp_servers_are_json_or_tables_of_the_config_file(tmp_path: Path) -> None:
    given = '{"files": {"command": "mcp-files", "args": ["/data"], "env": {"TOKEN": "secret-token"}}}'
    [files] = load({}, {"WONDER_MCP_SERVERS": given}).mcp_servers
    assert files == McpServer(
        name="files", command="mcp-files", args=("/data",), env={"TOKEN": "secret-token"}
    )
    file = tmp_path / "wonder.toml"
    file.write_text(
        '[mcp_servers.site]\nurl = "https://a.b/mcp"\nheaders = {Authorization = "Bearer secret"}'
    )
    settings = load({"config": str(file)}, {})
    assert settings.mcp_servers == (
        McpServer(name="site", url="https://a.b/mcp", headers={"Authorization": "Bearer secret"}),
    )
    assert "secret" not in repr(settings) + repr(settings.mcp_servers)
    assert settings.secrets() == ["Bearer secret"]
    assert load({}, {"WONDER_MCP_SERVERS": ""}).mcp_servers == ()


@pytest.mark.parametrize(
    "given",
    [
        "{oops",
        "[]",
        "1",
        '{"Files": {"command": "x"}}',
        '{"": {"command": "x"}}',
        '{"files": {}}',
        '{"files": "x"}',
        '{"files": {"command": ""}}',
        '{"files": {"command": "x", "url": "y"}}',
        '{"files": {"command": "x", "cwd": "/"}}',
        '{"files": {"url": "x", "env": {}}}',
        '{"files": {"command": "x", "args": "y"}}',
        '{"files": {"command": "x", "args": [1]}}',
        '{"files": {"command": "x", "env": {"a": 1}}}',
        '{"files": {"command": ["x"]}}',
    ],
)
def test_an_invalid_mcp_server_is_refused(given: str) -> None:
    with pytest.raises(SettingsError, match=r"^mcp_servers: (expected |.* needs |.* name is )"):
        load({}, {"WONDER_MCP_SERVERS": given})


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ("Authorization", "Bearer …"),
        ("Authorization", "Bearer x\n"),
        ("A B", "x"),
        ("", "x"),
        ("X-\u00e9", "x"),
    ],
)
def test_a_header_that_no_request_carries_is_refused_without_its_value(header: str, text: str) -> None:
    given = json.dumps({"site": {"url": "https://a.b/mcp", "headers": {header: text}}})
    with pytest.raises(
        SettingsError, match=r"^mcp_servers: the server site has a header that cannot"
    ) as problem:
        load({}, {"WONDER_MCP_SERVERS": given})
    assert "Bearer" not in str(problem.value)
