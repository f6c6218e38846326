"""Settings: the only place that reads the environment and the config file.

`Settings` is one frozen dataclass whose fields carry everything there is to say about them: name,
default, environment variable, how to read a value, and a line of help. From that one table come the
flags of ``wonder serve``, the keys of the TOML config file, and ``docs/settings.md``.

A value is looked for on the command line, then in the environment, then in the config file, then it
is the default. A key that nobody knows or a value that does not fit is a `SettingsError`, which names
the key and where it came from.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from wonder_server.settings_kinds import (
    ADDRESS,
    BUCKET,
    BUILT_IN_PROVIDERS,
    EMBEDDER,
    ENDPOINT,
    FLAG,
    FOLDER,
    FOLDERS,
    MCP_SERVERS,
    PATH,
    PROVIDERS,
    TEXT,
    Kind,
    McpServer,
    Provider,
    choice,
    number,
    split_address,
)


class SettingsError(Exception):
    """A setting that cannot be used. The message is a plain sentence; it never holds a secret."""


def _setting(default: object, env: str, kind: Kind, help: str, *, secret: bool = False) -> Any:
    metadata = {"env": env, "kind": kind, "help": help, "secret": secret}
    return field(default=default, repr=not secret, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything a server can be told. Read once at start; never changes."""

    listen: str = _setting(
        "127.0.0.1:50051", "WONDER_LISTEN", ADDRESS,
        "Address to listen on; port 0 picks a free one. Beyond loopback it wants TLS and tokens.",
    )  # fmt: skip
    data_dir: Path = _setting(
        Path("wonder-data"), "WONDER_DATA_DIR", FOLDER,
        "Folder that holds everything the server knows; made when missing.",
    )  # fmt: skip
    config: Path | None = _setting(
        None, "WONDER_CONFIG", PATH,
        "TOML file with any of these settings, by name. It cannot name another config file.",
    )  # fmt: skip
    log_format: str = _setting(
        "auto", "WONDER_LOG_FORMAT", choice("auto", "json", "console"),
        "How log lines look; auto is console on a terminal and json elsewhere.",
    )  # fmt: skip
    log_level: str = _setting(
        "info", "WONDER_LOG_LEVEL", choice("debug", "info", "warning", "error"),
        "Least level that is logged; debug shows one line per call.",
    )  # fmt: skip

    insecure: bool = _setting(
        False, "WONDER_INSECURE", FLAG,
        "Listen beyond loopback without TLS or without tokens. Anyone who can connect can do anything.",
    )  # fmt: skip
    tls_cert: Path | None = _setting(
        None, "WONDER_TLS_CERT", PATH, "Certificate chain (PEM). With tls_key it turns TLS on.",
    )  # fmt: skip
    tls_key: Path | None = _setting(
        None, "WONDER_TLS_KEY", PATH, "Private key (PEM) of the certificate.",
    )  # fmt: skip
    auth_tokens_file: Path | None = _setting(
        None, "WONDER_AUTH_TOKENS_FILE", PATH,
        "File with one 'token name' per line. When set, every call but health needs a bearer token.",
    )  # fmt: skip
    act_as: str = _setting(
        "", "WONDER_ACT_AS", TEXT,
        "Names of tokens, with commas between, that may speak for others: give a user_id or author other "
        "than their own name, or work in a conversation, turn or run.",
    )  # fmt: skip
    admin: str = _setting(
        "", "WONDER_ADMIN", TEXT,
        "Names of tokens, with commas between, that may delete, prune, have work done as an agent, and "
        "change the network policy and the repositories of projects.",
    )  # fmt: skip
    memory_search_all: str = _setting(
        "", "WONDER_MEMORY_SEARCH_ALL", TEXT,
        "Names of tokens, with commas between, that may search the memories of all agents together.",
    )  # fmt: skip

    shard_count: int = _setting(
        1, "WONDER_SHARD_COUNT", number(1, 32),
        "Number of shard databases; counts only when a data folder is made.",
    )  # fmt: skip
    max_idle_actors: int = _setting(
        1_000, "WONDER_MAX_IDLE_ACTORS", number(1, 1_000_000),
        "How many idle conversations stay in memory; the least recently used go first.",
    )  # fmt: skip
    max_idle_actor_bytes: int = _setting(
        64 * 2**20, "WONDER_MAX_IDLE_ACTOR_BYTES", number(0, 2**40),
        "About how many bytes of text idle conversations hold in memory together.",
    )  # fmt: skip

    conversation_ttl_seconds: int = _setting(
        0, "WONDER_CONVERSATION_TTL_SECONDS", number(0, 100 * 365 * 86_400),
        "When a conversation is archived that says nothing of it: so long after its last turn; 0 is never.",
    )  # fmt: skip
    sweep_interval_seconds: int = _setting(
        3600, "WONDER_SWEEP_INTERVAL_SECONDS", number(1, 86_400),
        "How often the server looks for conversations to archive, besides at its start.",
    )  # fmt: skip

    disk_reserve_bytes: int = _setting(
        8 << 20, "WONDER_DISK_RESERVE_BYTES", number(0, 1 << 40),
        "Bytes of the file RESERVE in the data folder. When less than a quarter of it is free beside it, the "
        "server gives it up, and only reads and deletes until there is room. 0: no reserve, no refusals.",
    )  # fmt: skip

    default_model: str = _setting(
        "", "WONDER_DEFAULT_MODEL", TEXT,
        "Default model, as provider/name. Empty: the first provider with a key, else offline.",
    )  # fmt: skip
    allow_remote_models: bool = _setting(
        True, "WONDER_ALLOW_REMOTE_MODELS", FLAG,
        "Whether models beyond loopback may be called at all. Tests say false.",
    )  # fmt: skip
    embedder: str = _setting(
        "", "WONDER_EMBEDDER", EMBEDDER,
        "Embedder that finds memories by meaning: provider/model, where provider is built in or one of "
        "[[providers]]; local:/a/folder with a sentence-transformers model; or empty for the built-in "
        "embedder, which knows spelling only.",
    )  # fmt: skip
    embedder_dimensions: int = _setting(
        0, "WONDER_EMBEDDER_DIMENSIONS", number(0, 65_536),
        "How many numbers a vector of that embedder has. To be given with it.",
    )  # fmt: skip
    openai_api_key: str = _setting(
        "", "OPENAI_API_KEY", TEXT, "Key for OpenAI and what speaks its format.", secret=True,
    )  # fmt: skip
    anthropic_api_key: str = _setting(
        "", "ANTHROPIC_API_KEY", TEXT, "Key for Anthropic.", secret=True,
    )  # fmt: skip
    gemini_api_key: str = _setting(
        "", "GEMINI_API_KEY", TEXT, "Key for Gemini.", secret=True,
    )  # fmt: skip
    openai_base_url: str = _setting(
        "", "WONDER_OPENAI_BASE_URL", TEXT, "Where to reach OpenAI's format; empty is the provider's own.",
    )  # fmt: skip
    anthropic_base_url: str = _setting(
        "", "WONDER_ANTHROPIC_BASE_URL", TEXT,
        "Where to reach Anthropic's format; empty is the provider's own.",
    )  # fmt: skip
    gemini_base_url: str = _setting(
        "", "WONDER_GEMINI_BASE_URL", TEXT, "Where to reach Gemini's format; empty is the provider's own.",
    )  # fmt: skip

    providers: tuple[Provider, ...] = _setting(
        (), "WONDER_PROVIDERS", PROVIDERS,
        "Further providers of models: a list of {name, format, base_url, key, headers, options}, or tables "
        "[[providers]] in the config file. format is that of requests, or litellm.",
        secret=True,
    )  # fmt: skip

    mcp_servers: tuple[McpServer, ...] = _setting(
        (), "WONDER_MCP_SERVERS", MCP_SERVERS,
        "Servers of the action mcp by name: {command, args, env} is started here, {url, headers} reached.",
        secret=True,
    )  # fmt: skip

    s3_endpoint: str = _setting(
        "", "WONDER_S3_ENDPOINT", ENDPOINT,
        "S3 server that keeps objects, such as https://s3.example.com. Empty: the data folder.",
    )  # fmt: skip
    s3_bucket: str = _setting(
        "wonder", "WONDER_S3_BUCKET", BUCKET, "Bucket of the objects; made when missing.",
    )  # fmt: skip
    s3_region: str = _setting("us-east-1", "WONDER_S3_REGION", TEXT, "Region that requests are signed for.")
    s3_access_key: str = _setting(
        "", "WONDER_S3_ACCESS_KEY", TEXT, "Name of the key for S3.", secret=True,
    )  # fmt: skip
    s3_secret_key: str = _setting(
        "", "WONDER_S3_SECRET_KEY", TEXT, "The key itself.", secret=True,
    )  # fmt: skip

    sandbox_idle_timeout_seconds: int = _setting(
        300, "WONDER_SANDBOX_IDLE_TIMEOUT_SECONDS", number(0, 86_400),
        "How long a conversation's sandbox is kept warm after its last command.",
    )  # fmt: skip
    sandbox_max_instances: int = _setting(
        32, "WONDER_SANDBOX_MAX_INSTANCES", number(1, 10_000),
        "How many sandboxes there are at once; idle ones make room, and commands beyond that wait.",
    )  # fmt: skip
    sandbox_memory_bytes: int = _setting(
        2 * 2**30, "WONDER_SANDBOX_MEMORY_BYTES", number(64 * 2**20, 2**44),
        "Memory that the processes of one sandbox may take together, its /tmp included.",
    )  # fmt: skip
    sandbox_max_processes: int = _setting(
        256, "WONDER_SANDBOX_MAX_PROCESSES", number(8, 100_000),
        "Processes and threads of one sandbox.",
    )  # fmt: skip
    sandbox_max_file_bytes: int = _setting(
        2**30, "WONDER_SANDBOX_MAX_FILE_BYTES", number(2**20, 2**44),
        "Size of the largest file that a command may write.",
    )  # fmt: skip
    sandbox_read_only_paths: tuple[Path, ...] = _setting(
        (), "WONDER_SANDBOX_READ_ONLY_PATHS", FOLDERS,
        "More folders that commands may read beside the system's, with ':' between them, such as /opt/tools.",
    )  # fmt: skip

    repository_roots: tuple[Path, ...] = _setting(
        (), "WONDER_REPOSITORY_ROOTS", FOLDERS,
        "Folders of this machine, with ':' between them, below which a project's repositories may lie. "
        "Empty: no folder of this machine can be a repository, only URLs.",
    )  # fmt: skip
    repository_update_checkouts: bool = _setting(
        False, "WONDER_REPOSITORY_UPDATE_CHECKOUTS", FLAG,
        "Whether a merge updates the working folder in which its target is checked out, below "
        "repository_roots. If false, such a merge is refused.",
    )  # fmt: skip

    worktree_bytes: int = _setting(
        2**30, "WONDER_WORKTREE_BYTES", number(2**20, 2**44),
        "Bytes that a conversation's files of one repository may have together, holes included. A checkout "
        "of more, and a look at more, is refused.",
    )  # fmt: skip

    worker_lease_seconds: int = _setting(
        30, "WONDER_WORKER_LEASE_SECONDS", number(1, 3_600),
        "How long a worker may be silent before its work is lost; three heartbeats fit in.",
    )  # fmt: skip

    shutdown_grace_seconds: int = _setting(
        10, "WONDER_SHUTDOWN_GRACE_SECONDS", number(1, 3_600),
        "From SIGTERM to exit at most, in seconds. Turns in flight are kept for the next start.",
    )  # fmt: skip
    max_request_bytes: int = _setting(
        4 * 1024 * 1024, "WONDER_MAX_REQUEST_BYTES", number(64 * 1024, 256 * 1024 * 1024),
        "Largest message a client may send, in bytes.",
    )  # fmt: skip
    max_message_bytes: int = _setting(
        2**20, "WONDER_MAX_MESSAGE_BYTES", number(1024, 2 * 2**20),
        "Bytes of a model's text in a message; a longer one is cut with a notice. ReadMessage has it whole.",
    )  # fmt: skip
    max_tool_arguments_bytes: int = _setting(
        256 * 1024, "WONDER_MAX_TOOL_ARGUMENTS_BYTES", number(1024, 2**20),
        "Bytes of the arguments of a model's tool call; a call with more is refused, and the model told.",
    )  # fmt: skip
    max_raw_answer_bytes: int = _setting(
        2**20, "WONDER_MAX_RAW_ANSWER_BYTES", number(4096, 2 * 2**20),
        "Bytes of a model's answer in its provider's format, and of the arguments of all its tool calls.",
    )  # fmt: skip
    max_answer_bytes: int = _setting(
        16 * 2**20, "WONDER_MAX_ANSWER_BYTES", number(4096, 64 * 2**20),
        "Bytes of a model's answer that are read and kept; the rest of a longer one is not read.",
    )  # fmt: skip
    max_concurrent_rpcs: int = _setting(
        10_000, "WONDER_MAX_CONCURRENT_RPCS", number(1, 1_000_000),
        "How many calls, open streams included, are served at once.",
    )  # fmt: skip
    max_streams: int = _setting(
        0, "WONDER_MAX_STREAMS", number(0, 1_000_000),
        "How many of these calls may be streams. 0: nine tenths, so that other calls always find a place.",
    )  # fmt: skip
    max_caller_rpcs: int = _setting(
        0, "WONDER_MAX_CALLER_RPCS", number(0, 1_000_000),
        "How many of these calls one token may have, open streams included. 0: half.",
    )  # fmt: skip
    attach_seconds: int = _setting(
        30, "WONDER_ATTACH_SECONDS", number(1, 3_600),
        "Seconds that a client of Converse has to send `attach`; then its stream ends with NOT_ATTACHED.",
    )  # fmt: skip
    request_seconds: int = _setting(
        120, "WONDER_REQUEST_SECONDS", number(1, 3_600),
        "Seconds that a call has to send its only request, whole; then it ends with TIMEOUT.",
    )  # fmt: skip
    max_concurrent_pages: int = _setting(
        4, "WONDER_MAX_CONCURRENT_PAGES", number(1, 10_000),
        "Pages of lists that are made at once, at most half for one token; waiting tokens take turns.",
    )  # fmt: skip
    max_stream_backlog_events: int = _setting(
        1_000, "WONDER_MAX_STREAM_BACKLOG_EVENTS", number(1, 1_000_000),
        "Events that may wait for one slow reader before its stream ends.",
    )  # fmt: skip
    max_stream_backlog_bytes: int = _setting(
        8 * 1024 * 1024, "WONDER_MAX_STREAM_BACKLOG_BYTES", number(64 * 1024, 1024 * 1024 * 1024),
        "Bytes that may wait for one reader in a burst, and 256 KiB at length, before its stream ends.",
    )  # fmt: skip

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach ``listen``."""
        host, _ = split_address(self.listen)
        if host == "localhost":
            return True
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False

    @property
    def has_tls(self) -> bool:
        """Whether the server speaks TLS."""
        return self.tls_cert is not None and self.tls_key is not None

    def secrets(self) -> list[str]:
        """What no log line may show."""
        plain = [getattr(self, row.name) for row in TABLE if row.secret and row.kind is TEXT]
        held = [text for each in self.mcp_servers for text in (*each.env.values(), *each.headers.values())]
        held += [text for each in self.providers for text in each.secrets]
        # A server's environment holds words such as "1" and "on" too, without which no line could be read.
        return [text for text in plain if text] + [text for text in held if len(text) >= 8]

    @property
    def provider_names(self) -> frozenset[str]:
        """Every provider that a model can be asked of."""
        return frozenset((*BUILT_IN_PROVIDERS, *(each.name for each in self.providers)))

    def provider_environment(self) -> dict[str, str]:
        """Keys, addresses and the chosen model, under the names that the model adapters know them by."""
        values = {
            "WONDER_DEFAULT_MODEL": self.default_model,
            "OPENAI_API_KEY": self.openai_api_key,
            "OPENAI_API_BASE": self.openai_base_url,
            "ANTHROPIC_API_KEY": self.anthropic_api_key,
            "ANTHROPIC_API_BASE": self.anthropic_base_url,
            "GEMINI_API_KEY": self.gemini_api_key,
            "GEMINI_API_BASE": self.gemini_base_url,
        }
        return {name: value for name, value in values.items() if value}

    @property
    def model_choice(self) -> str:
        """``default_model``, or the first provider that has a key, or ``offline``."""
        providers = (
            ("openai", self.openai_api_key),
            ("anthropic", self.anthropic_api_key),
            ("gemini", self.gemini_api_key),
        )
        return self.default_model or next((name for name, key in providers if key), "offline")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the table: what documents and flags are made of."""

    name: str
    env: str
    kind: Kind
    default: object
    help: str
    secret: bool

    @property
    def flag(self) -> str:
        """The command line flag. Secrets have none: other users of a machine can read arguments."""
        return "" if self.secret else "--" + self.name.replace("_", "-")

    @property
    def default_text(self) -> str:
        """The default as documents show it."""
        if isinstance(self.default, bool):
            return str(self.default).lower()
        return "" if self.default in (None, "", ()) else str(self.default)


TABLE: tuple[Setting, ...] = tuple(
    Setting(name=f.name, default=f.default, **f.metadata)
    for f in fields(Settings)
    if f.default is not MISSING
)

# Variables that begin with WONDER_ and belong to clients; a server that sees them says nothing.
_CLIENT_VARIABLES = frozenset({"WONDER_ADDRESS", "WONDER_SERVER", "WONDER_TOKEN", "WONDER_CA"})


def load(flags: Mapping[str, object], environ: Mapping[str, str] | None = None) -> Settings:
    """Settings from flags (by setting name; None means not given), the environment and the config file.

    ``environ`` is the process's environment unless given. Raises `SettingsError`.
    """
    environment = os.environ if environ is None else environ
    known = {row.name: row for row in TABLE}
    given: dict[str, tuple[object, str]] = {}
    for row in TABLE:
        if flags.get(row.name) is not None:
            given[row.name] = (flags[row.name], f"the flag {row.flag}")
        elif row.env in environment:
            given[row.name] = (environment[row.env], f"the environment variable {row.env}")
    if "config" in given:
        path = _read(known["config"], *given["config"])
        for name, value in _from_file(path, known).items() if path else ():
            given.setdefault(name, (value, f"the config file {path}"))
    settings = Settings(**{name: _read(known[name], *found) for name, found in given.items()})
    return _checked(replace(settings, data_dir=_absolute(settings.data_dir)))


def unknown_variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables that look like settings but are none, each with the nearest name that is one, or ''.

    They are not an error, since other versions and other programs may know them; a start logs them.
    """
    environment = os.environ if environ is None else environ
    known = {row.env for row in TABLE} | _CLIENT_VARIABLES
    strangers = sorted(name for name in environment if name.startswith("WONDER_") and name not in known)
    return {name: next(iter(difflib.get_close_matches(name, known, 1)), "") for name in strangers}


def _from_file(path: Path, known: Mapping[str, Setting]) -> dict[str, object]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise SettingsError(f"The config file {path} cannot be read: {problem.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise SettingsError(f"The config file {path} is not TOML: {problem}.") from None
    for name in values:
        if name == "config" or name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f" Did you mean {near[0]}?" if near and near[0] != name else ""
            raise SettingsError(f"The config file {path} sets {name}, which is no setting there.{hint}")
    return values


def _read(row: Setting, value: object, source: str) -> Any:
    try:
        return row.kind.read(value)
    except ValueError as problem:
        shown = "" if row.secret else f", not {value!r}"
        raise SettingsError(f"{row.name}: {problem}{shown} (from {source}).") from None


def _absolute(folder: Path) -> Path:
    """The folder as every process finds it: git and sandboxes work in folders of their own."""
    try:
        return Path(os.path.realpath(folder))
    except OSError as problem:
        said = problem.strerror or problem
        raise SettingsError(
            f"data_dir: {str(folder)!r} cannot be resolved, the current folder does not exist: {said}."
        ) from None


def _checked(settings: Settings) -> Settings:
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise SettingsError("tls_cert and tls_key belong together: give both or neither.")
    if bool(settings.embedder) != bool(settings.embedder_dimensions):
        raise SettingsError("embedder and embedder_dimensions belong together: give both or neither.")
    _check_provider("default_model", settings.default_model, settings)
    if settings.embedder and not settings.embedder.startswith("local:"):
        _check_provider("embedder", settings.embedder, settings)
    if settings.s3_endpoint and not (settings.s3_access_key and settings.s3_secret_key):
        raise SettingsError("s3_endpoint wants s3_access_key and s3_secret_key too.")
    return settings


def _check_provider(key: str, chosen: str, settings: Settings) -> None:
    """Refuse a ``provider/model`` whose provider this server does not have."""
    provider, slash, model = chosen.partition("/")
    if not chosen or chosen == "offline":
        return
    if not slash or not provider or not model:
        raise SettingsError(f"{key}: {chosen!r} is not written provider/model, such as openai/gpt-5.4-mini.")
    names = settings.provider_names
    if provider not in names:
        near = difflib.get_close_matches(provider, sorted(names), 1)
        raise SettingsError(
            f"{key}: this server has no model provider {provider!r} (in {chosen!r}). It has"
            f" {', '.join(sorted(names))}."
            + (f" Did you mean {near[0]}?" if near else "")
            + " Further ones are added with [[providers]] in the config file, or WONDER_PROVIDERS."
        )


def inherited(names: Sequence[str]) -> dict[str, str]:
    """The variables of this process's environment that a child process may see."""
    return {name: os.environ[name] for name in names if name in os.environ}


def preset(name: str, value: str) -> None:
    """Set a variable that a library of this process reads, unless the operator has set it."""
    os.environ.setdefault(name, value)
