"""The table of settings.

`Settings` is one frozen dataclass. Each field declares the group, default, kind and help text of a setting.
Its name is the key in the config file; the flag and the environment variable follow from the name. `TABLE`
lists the declarations; documents and flags are made from it.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from wonder_server.core.tenancy.issuers import Issuer
from wonder_server.settings.issuers import ISSUERS
from wonder_server.settings.kinds import (
    ADDRESS,
    BUCKET,
    EMBEDDER,
    ENDPOINT,
    FLAG,
    FOLDER,
    FOLDERS,
    MCP_SERVERS,
    METRICS_ADDRESS,
    PATH,
    TEXT,
    Group,
    Kind,
    McpServer,
    choice,
    is_loopback,
    number,
)
from wonder_server.settings.providers import BUILT_IN_PROVIDERS, FALLBACK_PRICE, PROVIDERS, Provider


class SettingsError(Exception):
    """A setting that cannot be used. The message is a sentence and never contains a secret."""


def _setting(
    group: Group, default: object, kind: Kind, help: str, *, env: str = "", secret: bool = False
) -> Any:
    metadata = {"group": group, "kind": kind, "help": help, "env": env, "secret": secret}
    return field(default=default, repr=not secret, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a server, read once at its start."""

    listen: str = _setting(
        Group.SERVER, "127.0.0.1:50051", ADDRESS,
        "Address to listen on; port 0 chooses a free port. An address beyond loopback requires TLS and "
        "tokens.",
    )  # fmt: skip
    data_dir: Path = _setting(
        Group.SERVER, Path("wonder-data"), FOLDER,
        "Data folder: everything that the server stores. The server creates it if it is missing.",
    )  # fmt: skip
    backup_dir: Path | None = _setting(
        Group.SERVER, None, PATH,
        "Folder of all backups that `wonder backup` makes, each in a folder of its own. Use another disk "
        "than that of the data folder. Without it the server makes no backups.",
    )  # fmt: skip
    config: Path | None = _setting(
        Group.SERVER, None, PATH,
        "TOML file with settings by name. It cannot name another config file.",
    )  # fmt: skip
    shutdown_grace_seconds: int = _setting(
        Group.SERVER, 10, number(1, 3_600),
        "Maximum time from SIGTERM to exit, in seconds. Unfinished turns continue at the next start.",
    )  # fmt: skip

    log_format: str = _setting(
        Group.LOG, "auto", choice("auto", "json", "console"),
        "Format of log lines. auto selects console on a terminal and json elsewhere.",
    )  # fmt: skip
    log_level: str = _setting(
        Group.LOG, "info", choice("debug", "info", "warning", "error"),
        "Lowest level that is logged. debug adds one line for each call.",
    )  # fmt: skip

    metrics_address: str = _setting(
        Group.TELEMETRY, "", METRICS_ADDRESS,
        "Address of a listener of its own for metrics in the format of Prometheus (/metrics). Empty: none. "
        "An address beyond loopback requires TLS and metrics_token_file.",
    )  # fmt: skip
    metrics_token_file: Path | None = _setting(
        Group.TELEMETRY, None, PATH, "File with the bearer token that a read of the metrics must bring.",
    )  # fmt: skip
    otlp_endpoint: str = _setting(
        Group.TELEMETRY, "", ENDPOINT,
        "URL of a collector that gets the spans of all work (OTLP over HTTP, JSON, at /v1/traces), such as "
        "http://127.0.0.1:4318. Empty: none. Spans contain names, ids and numbers, and no contents.",
    )  # fmt: skip
    trace_percent: int = _setting(
        Group.TELEMETRY, 100, number(0, 100), "Percentage of traces whose spans the collector gets.",
    )  # fmt: skip

    insecure: bool = _setting(
        Group.SECURITY, False, FLAG,
        "Permission to listen beyond loopback without TLS or without tokens. Every client that can connect "
        "then has every scope.",
    )  # fmt: skip
    tls_cert: Path | None = _setting(
        Group.SECURITY, None, PATH, "Certificate chain (PEM). It turns on TLS, together with tls_key.",
    )  # fmt: skip
    tls_key: Path | None = _setting(
        Group.SECURITY, None, PATH, "Private key (PEM) of the certificate.",
    )  # fmt: skip
    require_auth: bool = _setting(
        Group.SECURITY, False, FLAG,
        "Authentication of every call except health, by an API key of a stored principal or by a token. "
        "auth_tokens_file turns it on too.",
    )  # fmt: skip
    auth_tokens_file: Path | None = _setting(
        Group.SECURITY, None, PATH,
        "Tokens file with one 'token name' a line. With it, every call except health requires a bearer "
        "token.",
    )  # fmt: skip
    issuers: tuple[Issuer, ...] = _setting(
        Group.SECURITY, (), ISSUERS,
        "Issuers of tokens (OpenID Connect) whose users may call: a list of {issuer, audiences, jwks_url, "
        "jwks_file, algorithms, tenant, name_claim, groups_claim, leeway_seconds}, or tables [[issuers]] in "
        "the config file. They turn authentication on. docs/operating.md describes each.",
    )  # fmt: skip
    act_as: str = _setting(
        Group.SECURITY, "", TEXT,
        "Names of tokens, separated by commas, that have the permission act_as: they may give a user_id or "
        "author other than their own name, and work in a conversation, turn or run.",
    )  # fmt: skip
    admin: str = _setting(
        Group.SECURITY, "", TEXT,
        "Names of tokens, separated by commas, that have all permissions but those of act_as and "
        "memory_search_all: they may delete, prune, execute work as an agent, and change the network policy "
        "and the repositories of projects.",
    )  # fmt: skip
    memory_search_all: str = _setting(
        Group.SECURITY, "", TEXT,
        "Names of tokens, separated by commas, that have the permission memories.search_all: they may search "
        "the memories of all agents together.",
    )  # fmt: skip

    shard_count: int = _setting(
        Group.STORAGE, 1, number(1, 32),
        "Number of shard files. It is fixed when the data folder is created.",
    )  # fmt: skip
    disk_reserve_bytes: int = _setting(
        Group.STORAGE, 8 << 20, number(0, 1 << 40),
        "Size of the file RESERVE in the data folder, in bytes. When less than a quarter of it is free "
        "beside it, the server releases it, and only reads and deletes until space is free. 0 disables the "
        "reserve and the refusals.",
    )  # fmt: skip
    s3_endpoint: str = _setting(
        Group.STORAGE, "", ENDPOINT,
        "URL of the S3 server that stores objects, such as https://s3.example.com. Empty: the data folder "
        "stores them.",
    )  # fmt: skip
    s3_bucket: str = _setting(
        Group.STORAGE, "wonder", BUCKET, "Bucket of the objects. The server creates it if it is missing.",
    )  # fmt: skip
    s3_region: str = _setting(Group.STORAGE, "us-east-1", TEXT, "Region in the signatures of requests to S3.")
    s3_access_key: str = _setting(
        Group.STORAGE, "", TEXT, "Name of the access key for S3.", secret=True,
    )  # fmt: skip
    s3_secret_key: str = _setting(
        Group.STORAGE, "", TEXT, "Secret of the access key for S3.", secret=True,
    )  # fmt: skip

    max_idle_actors: int = _setting(
        Group.CONVERSATIONS, 1_000, number(1, 1_000_000),
        "Maximum number of idle conversations in memory. The server evicts the least recently used first.",
    )  # fmt: skip
    max_idle_actor_bytes: int = _setting(
        Group.CONVERSATIONS, 64 * 2**20, number(0, 2**40),
        "Maximum total size of idle conversations in memory, in bytes (approximate).",
    )  # fmt: skip
    conversation_ttl_seconds: int = _setting(
        Group.CONVERSATIONS, 0, number(0, 100 * 365 * 86_400),
        "Seconds of inactivity after which a conversation without expire_time is archived. 0 disables "
        "archiving.",
    )  # fmt: skip
    sweep_interval_seconds: int = _setting(
        Group.CONVERSATIONS, 3600, number(1, 86_400),
        "Seconds between two sweeps, which archive expired conversations and apply retention rules. The "
        "first is at the start.",
    )  # fmt: skip

    default_model: str = _setting(
        Group.MODELS, "", TEXT,
        "Default model, as provider/name. Empty: the first provider with a key, else offline.",
    )  # fmt: skip
    allow_remote_models: bool = _setting(
        Group.MODELS, True, FLAG, "Permission to call models beyond loopback. Tests set false.",
    )  # fmt: skip
    openai_api_key: str = _setting(
        Group.MODELS, "", TEXT, "Key for OpenAI and for providers that speak its format.",
        env="OPENAI_API_KEY", secret=True,
    )  # fmt: skip
    anthropic_api_key: str = _setting(
        Group.MODELS, "", TEXT, "Key for Anthropic.", env="ANTHROPIC_API_KEY", secret=True,
    )  # fmt: skip
    gemini_api_key: str = _setting(
        Group.MODELS, "", TEXT, "Key for Gemini.", env="GEMINI_API_KEY", secret=True,
    )  # fmt: skip
    openai_base_url: str = _setting(
        Group.MODELS, "", TEXT, "URL for requests in OpenAI's format. Empty: the provider's own.",
    )  # fmt: skip
    anthropic_base_url: str = _setting(
        Group.MODELS, "", TEXT, "URL for requests in Anthropic's format. Empty: the provider's own.",
    )  # fmt: skip
    gemini_base_url: str = _setting(
        Group.MODELS, "", TEXT, "URL for requests in Gemini's format. Empty: the provider's own.",
    )  # fmt: skip
    unknown_cost: str = _setting(
        Group.MODELS, "free", choice("free", "count", "refuse"),
        "Effect of a cost budget on models whose price is not known. free: their calls count as free; count: "
        "they count with fallback_price; refuse: calls of turns with a cost budget fail with COST_UNKNOWN.",
    )  # fmt: skip
    fallback_price: str = _setting(
        Group.MODELS, "", FALLBACK_PRICE,
        "Price that unknown_cost=count counts: US dollars for a million tokens of requests and of answers, "
        "such as 3.00/15.00.",
    )  # fmt: skip
    providers: tuple[Provider, ...] = _setting(
        Group.MODELS, (), PROVIDERS,
        "Further providers of models: a list of {name, format, base_url, key, key_env, key_file, headers, "
        "options, context_window_tokens, prices, models}, or tables [[providers]] in the config file. format "
        "is the format of requests, or litellm. docs/operating.md describes each.",
        secret=True,
    )  # fmt: skip

    embedder: str = _setting(
        Group.EMBEDDER, "", EMBEDDER,
        "Embedder that finds memories by meaning: provider/model, with a provider that is built in or in "
        "[[providers]]; local:/a/folder with a sentence-transformers model; or empty for the built-in "
        "embedder, which compares spelling only.",
    )  # fmt: skip
    embedder_dimensions: int = _setting(
        Group.EMBEDDER, 0, number(0, 65_536),
        "Number of dimensions of the embedder's vectors. Required with embedder.",
    )  # fmt: skip

    mcp_servers: tuple[McpServer, ...] = _setting(
        Group.SERVERS, (), MCP_SERVERS,
        "Servers of the action mcp and of tool_sources, by name: the server starts {command, args, env} and "
        "connects to {url, headers}.",
        secret=True,
    )  # fmt: skip
    mcp_tools_max_age_seconds: int = _setting(
        Group.SERVERS, 30, number(0, 86_400),
        "Seconds for which turns use the tools that an MCP server has listed. The next turn after them asks "
        "the server again. 0: each turn asks.",
    )  # fmt: skip
    worker_lease_seconds: int = _setting(
        Group.SERVERS, 30, number(1, 3_600),
        "Seconds without a heartbeat after which a worker loses its assignments. A worker sends three "
        "heartbeats in that time.",
    )  # fmt: skip

    sandbox_idle_timeout_seconds: int = _setting(
        Group.SANDBOX, 300, number(0, 86_400),
        "Seconds for which the sandbox of a conversation is kept after its last command.",
    )  # fmt: skip
    sandbox_max_instances: int = _setting(
        Group.SANDBOX, 32, number(1, 10_000),
        "Maximum number of sandboxes. Above it, idle sandboxes end and further commands wait.",
    )  # fmt: skip
    sandbox_memory_bytes: int = _setting(
        Group.SANDBOX, 2 * 2**30, number(64 * 2**20, 2**44),
        "Maximum memory of all processes of one sandbox, its /tmp included, in bytes.",
    )  # fmt: skip
    sandbox_max_processes: int = _setting(
        Group.SANDBOX, 256, number(8, 100_000),
        "Maximum number of processes and threads of one sandbox.",
    )  # fmt: skip
    sandbox_max_file_bytes: int = _setting(
        Group.SANDBOX, 2**30, number(2**20, 2**44),
        "Maximum size of a file that a command writes, in bytes.",
    )  # fmt: skip
    sandbox_read_only_paths: tuple[Path, ...] = _setting(
        Group.SANDBOX, (), FOLDERS,
        "Folders, separated by ':', that commands may read in addition to the system's, such as /opt/tools.",
    )  # fmt: skip

    repository_roots: tuple[Path, ...] = _setting(
        Group.REPOSITORIES, (), FOLDERS,
        "Folders of this machine, separated by ':', that may contain repositories of projects. Empty: "
        "repositories are URLs only.",
    )  # fmt: skip
    repository_update_checkouts: bool = _setting(
        Group.REPOSITORIES, False, FLAG,
        "Permission to update the working folder below repository_roots in which the target of a merge is "
        "checked out. Without it the server refuses such a merge.",
    )  # fmt: skip
    repository_bytes: int = _setting(
        Group.REPOSITORIES, 2**33, number(2**20, 2**50),
        "Maximum size of what one fetch of a repository from another machine writes, in bytes.",
    )  # fmt: skip
    worktree_bytes: int = _setting(
        Group.REPOSITORIES, 2**30, number(2**20, 2**44),
        "Maximum size of a conversation's files of one repository, holes included, in bytes. The server "
        "refuses a larger checkout, and does not read more.",
    )  # fmt: skip

    max_concurrent_rpcs: int = _setting(
        Group.CALLS, 10_000, number(1, 1_000_000),
        "Maximum number of concurrent calls, open streams included.",
    )  # fmt: skip
    max_streams: int = _setting(
        Group.CALLS, 0, number(0, 1_000_000),
        "Maximum number of open streams among these calls. 0: nine tenths, so that other calls always find "
        "a place.",
    )  # fmt: skip
    max_caller_rpcs: int = _setting(
        Group.CALLS, 0, number(0, 1_000_000),
        "Maximum number of concurrent calls of one token, open streams included. 0: half of "
        "max_concurrent_rpcs.",
    )  # fmt: skip
    attach_seconds: int = _setting(
        Group.CALLS, 30, number(1, 3_600),
        "Seconds in which a client of Converse must send `attach`. The stream then ends with NOT_ATTACHED.",
    )  # fmt: skip
    request_seconds: int = _setting(
        Group.CALLS, 120, number(1, 3_600),
        "Seconds in which the only request of a call must arrive. The call then ends with TIMEOUT.",
    )  # fmt: skip
    max_concurrent_pages: int = _setting(
        Group.CALLS, 4, number(1, 10_000),
        "Maximum number of pages of lists that the server builds at the same time; half of them for one "
        "token.",
    )  # fmt: skip
    max_stream_backlog_events: int = _setting(
        Group.CALLS, 1_000, number(1, 1_000_000),
        "Maximum number of events that wait for one slow reader. Its stream then ends with SLOW_READER.",
    )  # fmt: skip
    max_stream_backlog_bytes: int = _setting(
        Group.CALLS, 8 * 1024 * 1024, number(64 * 1024, 1024 * 1024 * 1024),
        "Maximum size of a burst that waits for one reader, in bytes; 256 KiB over a longer time. The "
        "stream then ends with SLOW_READER.",
    )  # fmt: skip

    max_request_bytes: int = _setting(
        Group.SIZES, 4 * 1024 * 1024, number(64 * 1024, 256 * 1024 * 1024),
        "Maximum size of a message from a client, in bytes.",
    )  # fmt: skip
    max_message_bytes: int = _setting(
        Group.SIZES, 2**20, number(1024, 2 * 2**20),
        "Maximum size of a model's text in a message, in bytes. A longer text is cut with a notice; "
        "ReadMessage returns the whole.",
    )  # fmt: skip
    max_tool_arguments_bytes: int = _setting(
        Group.SIZES, 256 * 1024, number(1024, 2**20),
        "Maximum size of the arguments of a model's tool call, in bytes. The server refuses a larger call "
        "and tells the model.",
    )  # fmt: skip
    max_tool_result_bytes: int = _setting(
        Group.SIZES, 16 * 1024, number(1024, 4 * 2**20),
        "Maximum size of the text of a tool's result for the model, in bytes. Of a larger result the model "
        "gets the beginning and the end with a notice, and the record has all of it. A tool may set its own "
        "max_result_bytes.",
    )  # fmt: skip
    max_raw_answer_bytes: int = _setting(
        Group.SIZES, 2**20, number(4096, 2 * 2**20),
        "Maximum size of a model's answer in its provider's format, and of the arguments of all its tool "
        "calls, in bytes.",
    )  # fmt: skip
    max_answer_bytes: int = _setting(
        Group.SIZES, 16 * 2**20, number(4096, 64 * 2**20),
        "Maximum size of a model's answer, in bytes. The server does not read the rest of a longer one.",
    )  # fmt: skip
    max_waiting_messages: int = _setting(
        Group.SIZES, 32, number(1, 1000),
        "Maximum number of messages to one agent that wait in a conversation whose concurrent_turns is "
        "`queue` or `steer`. A further message is refused with LIMIT_EXCEEDED.",
    )  # fmt: skip

    max_file_bytes: int = _setting(
        Group.FILES, 20 * 2**20, number(1024, 2**30), "Maximum size of a file of a project, in bytes.",
    )  # fmt: skip
    max_message_files: int = _setting(
        Group.FILES, 20, number(1, 100), "Maximum number of images and files in one message.",
    )  # fmt: skip
    file_media_types: str = _setting(
        Group.FILES,
        "image/png,image/jpeg,image/gif,image/webp,application/pdf,"
        "text/plain,text/markdown,text/csv,application/json",
        TEXT,
        "Media types of files, separated by commas, that the server accepts.",
    )  # fmt: skip

    @property
    def is_loopback(self) -> bool:
        """Return True if only this machine can reach ``listen``."""
        return is_loopback(self.listen)

    @property
    def has_tls(self) -> bool:
        """Return True if the server uses TLS."""
        return self.tls_cert is not None and self.tls_key is not None

    @property
    def has_auth(self) -> bool:
        """Return True if every call needs a token or a key."""
        return self.require_auth or self.auth_tokens_file is not None or bool(self.issuers)

    @property
    def media_types(self) -> frozenset[str]:
        """The media types of files that the server accepts."""
        return frozenset(each.strip().lower() for each in self.file_media_types.split(",") if each.strip())

    def secrets(self) -> list[str]:
        """Return the texts that no log line may show."""
        plain = [getattr(self, row.name) for row in TABLE if row.secret and row.kind is TEXT]
        configured = [
            text for each in self.mcp_servers for text in (*each.env.values(), *each.headers.values())
        ]
        configured += [text for each in self.providers for text in each.secrets]
        # Environments also contain words such as "1" and "on". Without those, no log line could be read.
        return [text for text in plain if text] + [text for text in configured if len(text) >= 8]

    @property
    def provider_names(self) -> frozenset[str]:
        """Names of all providers, built in and listed."""
        return frozenset((*BUILT_IN_PROVIDERS, *(each.name for each in self.providers)))

    def provider_environment(self) -> dict[str, str]:
        """Return keys, addresses and the default model under the names that the model adapters use."""
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
        """``default_model``; else the first provider with a key; else ``offline``."""
        providers = (
            ("openai", self.openai_api_key),
            ("anthropic", self.anthropic_api_key),
            ("gemini", self.gemini_api_key),
        )
        return self.default_model or next((name for name, key in providers if key), "offline")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the table, from which documents and flags are made."""

    name: str
    env: str
    group: Group
    kind: Kind
    default: object
    help: str
    secret: bool

    @property
    def flag(self) -> str:
        """The command line flag; "" for secrets, since other users of the machine can read arguments."""
        return "" if self.secret else "--" + self.name.replace("_", "-")

    @property
    def default_text(self) -> str:
        """The default as documents show it."""
        if isinstance(self.default, bool):
            return str(self.default).lower()
        return "" if self.default in (None, "", ()) else str(self.default)


def _row(declared: Field[object]) -> Setting:
    data = dict(declared.metadata)
    env = data.pop("env") or f"WONDER_{declared.name.upper()}"
    return Setting(name=declared.name, default=declared.default, env=env, **data)


TABLE: tuple[Setting, ...] = tuple(_row(each) for each in fields(Settings) if each.default is not MISSING)
