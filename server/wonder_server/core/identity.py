"""Principals: the authenticated callers of the server, and the server itself.

The rpc layer makes one `Principal` for each call. Everything below takes it as an argument. Records keep its
`text`, without permissions: what a principal may do is decided at the call, and again by later calls.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from wonder_server.core.access.permissions import ALL


class PrincipalKind(StrEnum):
    """Kind of a principal, as records store it."""

    ANONYMOUS = "anonymous"
    """A caller of a server without tokens."""
    TOKEN = "token"
    """A caller with a token of the tokens file. The subject is the token's name."""
    SERVER = "server"
    """The server's own work, such as the retention of memories. The subject is "", or names the part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """An authenticated caller.

    ``tenant`` is the tenant that the caller belongs to; "" while the server has one. ``subject`` is the
    caller's name within its kind. ``permissions`` are those that it has anywhere
    (`wonder_server.core.access.permissions`). They are no part of `repr` and of `text`.
    """

    kind: PrincipalKind
    subject: str = ""
    tenant: str = ""
    permissions: frozenset[str] = field(default=frozenset(), repr=False)

    @property
    def text(self) -> str:
        """The principal as records keep it: ``kind``, ``kind:subject`` or ``tenant/kind:subject``."""
        text = f"{self.kind.value}:{self.subject}" if self.subject else self.kind.value
        return f"{self.tenant}/{text}" if self.tenant else text

    @property
    def caller(self) -> str:
        """The name that separates this caller's requests and queues from those of others; "" if the server
        cannot tell its callers apart."""
        return self.subject if self.kind is PrincipalKind.TOKEN else ""


ANONYMOUS: Final = Principal(kind=PrincipalKind.ANONYMOUS, permissions=ALL)
"""Every caller of a server without tokens. It has every permission."""

SERVER: Final = Principal(kind=PrincipalKind.SERVER, permissions=ALL)
"""The server, for work that no caller started."""


def server_part(name: str) -> Principal:
    """Return the principal of one part of the server, such as ``retention``."""
    return Principal(kind=PrincipalKind.SERVER, subject=name, permissions=ALL)


def recorded_principal(text: str) -> Principal | None:
    """Return the principal that a record names, without permissions.

    None if it is unknown: records of earlier versions name none. A kind of a later version is unknown too.
    """
    head, _, subject = text.partition(":")
    tenant, _, kind = head.rpartition("/")
    if kind not in _KINDS:
        return None
    return Principal(kind=PrincipalKind(kind), subject=subject, tenant=tenant)


_KINDS: Final = frozenset(kind.value for kind in PrincipalKind)
