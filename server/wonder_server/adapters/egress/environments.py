"""Environments of subprocesses: variables that make them use the proxy and avoid metadata services."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from wonder_server.adapters.egress.proxy import Lease

PROXY_VARIABLES: Final = frozenset(
    name
    for plain in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ftp_proxy")
    for name in (plain, plain.upper())
)
"""The operator's proxy variables. The server reads them. Subprocesses must not, or they would bypass its
proxy."""

_NO_METADATA: Final = {
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_METADATA_SERVICE_NUM_ATTEMPTS": "1",
    "AWS_METADATA_SERVICE_TIMEOUT": "1",
    # No server listens on the discard port, so requests that are made anyway are refused.
    "AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:9",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "CLOUDSDK_CONFIG": "/dev/null",
    "NO_GCE_CHECK": "true",
    "GCE_METADATA_HOST": "127.0.0.1:9",
    "GCE_METADATA_IP": "127.0.0.1:9",
    "GCE_METADATA_ROOT": "127.0.0.1:9",
    "GCE_METADATA_TIMEOUT": "1",
    "AZURE_POD_IDENTITY_AUTHORITY_HOST": "http://127.0.0.1:9",
    "IDENTITY_ENDPOINT": "",
    "MSI_ENDPOINT": "",
}

_SSH: Final = (
    "-oControlMaster=no -oControlPath=none -oCanonicalizeHostname=no -oForwardAgent=no -oForwardX11=no"
    " -oClearAllForwardings=yes -oPermitLocalCommand=no -oProxyUseFdpass=no"
    " '-oProxyCommand=\"$WONDER_EGRESS_DIAL\" %h %p'"
)
"""ssh replaces %h by the host of a URL, which was checked to consist of letters, digits, '.', '-', '_' and
':', or by the HostName that the operator's configuration gives for it."""


def helper_environment(lease: Lease | None) -> dict[str, str]:
    """Return the variables of a helper process that calls model providers. None allows no connections."""
    if lease is None:
        return dict(_NO_METADATA)
    proxy = lease.url
    names = ("http_proxy", "https_proxy", "all_proxy")
    proxies = {name: proxy for plain in names for name in (plain, plain.upper())}
    # LiteLLM's HTTP client reads proxies from the environment only with AIOHTTP_TRUST_ENV.
    return {**_NO_METADATA, **proxies, "NO_PROXY": "", "no_proxy": "", "AIOHTTP_TRUST_ENV": "True"}


def git_environment(lease: Lease, environment: Mapping[str, str]) -> dict[str, str]:
    """Return ``environment`` for a git command whose connections (https, http, git, ssh) all use the
    lease."""
    kept = {name: value for name, value in environment.items() if name not in PROXY_VARIABLES}
    configured = {
        "http.proxy": lease.url,
        "http.proxyAuthMethod": "basic",
        # The target of a redirect must not get the headers and keys of the operator's configuration.
        "http.followRedirects": "false",
        "http.emptyAuth": "false",
    }
    dial = str(Path(_program_folder().name) / "dial")
    return {
        **kept,
        "GIT_CONFIG_COUNT": str(len(configured)),
        **{f"GIT_CONFIG_KEY_{index}": name for index, name in enumerate(configured)},
        **{f"GIT_CONFIG_VALUE_{index}": value for index, value in enumerate(configured.values())},
        "GIT_ALLOW_PROTOCOL": "http:https:ssh:git",
        "GIT_PROXY_COMMAND": dial,
        "GIT_SSH_COMMAND": f"{kept.get('GIT_SSH_COMMAND') or 'ssh -oBatchMode=yes'} {_SSH}",
        "GIT_SSH_VARIANT": "ssh",
        "WONDER_EGRESS": str(lease.port),
        "WONDER_EGRESS_TOKEN": lease.token,
        "WONDER_EGRESS_DIAL": dial,
        "WONDER_EGRESS_PYTHON": sys.executable,
        "WONDER_EGRESS_SCRIPT": str(Path(__file__).with_name("dial.py")),
    }


@cache
def _program_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a private folder with the program ``dial``, which runs `dial`: git accepts only one word.

    The folder is removed when this process ends.
    """
    folder = tempfile.TemporaryDirectory(prefix="wonder-dial-")
    program = Path(folder.name) / "dial"
    program.write_text('#!/bin/sh\nexec "$WONDER_EGRESS_PYTHON" -I -S "$WONDER_EGRESS_SCRIPT" "$@"\n')
    os.chmod(program, 0o500)
    return folder
