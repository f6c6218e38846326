"""The only package that names concrete adapters: a server, put together from its settings."""

from __future__ import annotations

from wonder_server.compose.clock import SystemClock
from wonder_server.compose.server import Application, build

__all__ = ["Application", "SystemClock", "build"]
