"""Which server is meant where nothing else is said: one place for the SDK and the ``wonder`` command.

=================  ==================================================================================
``WONDER_SERVER``  address of the server, ``host:port`` (default 127.0.0.1:50051)
``WONDER_TOKEN``   token to show, where the server wants one
``WONDER_CA``      PEM file of the authority that vouches for the server; turns on encryption
=================  ==================================================================================

Read when it is needed, and what is empty counts as not there.
"""

from __future__ import annotations

import os

DEFAULT_TARGET = "127.0.0.1:50051"


def target() -> str:
    """Address of the server."""
    return os.environ.get("WONDER_SERVER") or DEFAULT_TARGET


def token() -> str | None:
    """Token to show; None for none."""
    return os.environ.get("WONDER_TOKEN") or None


def ca_certificate() -> str | None:
    """PEM file that turns on encryption; None for none."""
    return os.environ.get("WONDER_CA") or None
