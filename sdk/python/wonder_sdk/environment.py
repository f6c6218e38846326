"""Environment variables of the SDK and the ``wonder`` command.

=================  ==================================================================================
``WONDER_SERVER``  address of the server, ``host:port`` (default 127.0.0.1:50051)
``WONDER_TOKEN``   token for a server that requires one
``WONDER_CA``      PEM file of the server's certificate authority; turns on TLS
=================  ==================================================================================

They are read at each use; an empty variable counts as unset.
"""

from __future__ import annotations

import os

DEFAULT_TARGET = "127.0.0.1:50051"


def target() -> str:
    """Return the server's address."""
    return os.environ.get("WONDER_SERVER") or DEFAULT_TARGET


def token() -> str | None:
    """Return the token, or None."""
    return os.environ.get("WONDER_TOKEN") or None


def ca_certificate() -> str | None:
    """Return the PEM file that turns on TLS, or None."""
    return os.environ.get("WONDER_CA") or None
