"""Construction of a server from its settings; the only package that names concrete adapters."""

from __future__ import annotations

from wonder_server.compose.clock import SystemClock
from wonder_server.compose.platform import Platform
from wonder_server.compose.server import Application, open_application

__all__ = ["Application", "Platform", "SystemClock", "open_application"]
