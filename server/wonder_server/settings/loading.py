"""Reading of settings: flags, environment, config file.

A flag goes before a variable of the environment, a variable before the config file, the file before the
default. An unknown key in the file, or a value of the wrong kind, raises `SettingsError`. The message names
the key and its source.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from wonder_server.settings.providers import with_keys
from wonder_server.settings.table import TABLE, Setting, Settings, SettingsError

# Variables of clients. The server does not report them as unknown.
_CLIENT_VARIABLES = frozenset({"WONDER_ADDRESS", "WONDER_SERVER", "WONDER_TOKEN", "WONDER_CA"})


def load(flags: Mapping[str, object], environ: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of flags, the environment and the config file.

    ``flags`` are by name of the setting; None means not given. ``environ`` replaces the environment of the
    process. Raises `SettingsError`.
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
        path = _parse(known["config"], *given["config"])
        for name, value in _from_file(path, known).items() if path else ():
            given.setdefault(name, (value, f"the config file {path}"))
    settings = Settings(**{name: _parse(known[name], *found) for name, found in given.items()})
    try:
        providers = with_keys(settings.providers, environment)
    except ValueError as problem:
        raise SettingsError(f"providers: {problem} (from {given['providers'][1]}).") from None
    return _validated(replace(settings, data_dir=_absolute_path(settings.data_dir), providers=providers))


def unknown_variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return variables WONDER_… that name no setting, each with the closest one that does, or "".

    They are no error, since other versions and other programs may use them. A start logs them.
    """
    environment = os.environ if environ is None else environ
    known = {row.env for row in TABLE} | _CLIENT_VARIABLES
    unknown = sorted(name for name in environment if name.startswith("WONDER_") and name not in known)
    return {name: next(iter(difflib.get_close_matches(name, known, 1)), "") for name in unknown}


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


def _parse(row: Setting, value: object, source: str) -> Any:
    try:
        return row.kind.read(value)
    except ValueError as problem:
        quoted = "" if row.secret else f", not {value!r}"
        raise SettingsError(f"{row.name}: {problem}{quoted} (from {source}).") from None


def _absolute_path(folder: Path) -> Path:
    """Return the folder as an absolute path: git and sandboxes have other current folders."""
    try:
        return Path(os.path.realpath(folder))
    except OSError as problem:
        raise SettingsError(
            f"data_dir: {str(folder)!r} cannot be resolved, since the current folder "
            f"cannot be read: {problem.strerror or problem}."
        ) from None


def _validated(settings: Settings) -> Settings:
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise SettingsError("tls_cert and tls_key belong together: give both or neither.")
    if bool(settings.embedder) != bool(settings.embedder_dimensions):
        raise SettingsError("embedder and embedder_dimensions belong together: give both or neither.")
    if (settings.unknown_cost == "count") != bool(settings.fallback_price):
        raise SettingsError("unknown_cost=count and fallback_price belong together: give both or neither.")
    _check_provider("default_model", settings.default_model, settings)
    if settings.embedder and not settings.embedder.startswith("local:"):
        _check_provider("embedder", settings.embedder, settings)
    if settings.s3_endpoint and not (settings.s3_access_key and settings.s3_secret_key):
        raise SettingsError("s3_endpoint needs s3_access_key and s3_secret_key.")
    return settings


def _check_provider(key: str, chosen: str, settings: Settings) -> None:
    """Raise `SettingsError` if ``chosen``, written provider/model, names no provider of this server."""
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
            + " Add others with [[providers]] in the config file, or with WONDER_PROVIDERS."
        )


def inherited_environment(names: Sequence[str]) -> dict[str, str]:
    """Return the named variables of this process's environment, for a child process."""
    return {name: os.environ[name] for name in names if name in os.environ}


def set_default_variable(name: str, value: str) -> None:
    """Set a variable that a library of this process reads, unless the operator set it."""
    os.environ.setdefault(name, value)
