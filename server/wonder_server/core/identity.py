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
    USER = "user"
    """A person, by the name of its stored principal."""
    SERVICE = "service"
    """A program that acts for its users: where it is a member, it may name any of them (`act_as`)."""
    WORKER = "worker"
    """A program that executes tasks."""
    NODE = "node"
    """Another server of the cluster."""
    SERVER = "server"
    """The server's own work, such as the retention of memories. The subject is "", or names the part."""


STORED_KINDS: Final = frozenset(
    {PrincipalKind.USER, PrincipalKind.SERVICE, PrincipalKind.WORKER, PrincipalKind.NODE}
)
"""Kinds of the principals that are stored. The others are of the tokens file, or the server itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """An authenticated caller.

    ``tenant`` is the tenant that the caller belongs to; "" while the server has one. ``subject`` is the
    caller's name within its kind. ``limited_by`` is the id of the key of the call, if the key limits what its
    principal may do. ``permissions`` are those that it has anywhere
    (`wonder_server.core.access.permissions`), ``permission`` is the one that the method of the call needs, ""
    for work that the call causes. They are no part of `repr` and of `text`.
    """

    kind: PrincipalKind
    subject: str = ""
    tenant: str = ""
    limited_by: str = ""
    permissions: frozenset[str] = field(default=frozenset(), repr=False)
    permission: str = field(default="", repr=False)

    @property
    def text(self) -> str:
        """The principal as records keep it: ``kind``, ``kind:subject``, ``kind#key:subject`` with the key
        that limits it, or one of them after ``tenant/``."""
        kind = f"{self.kind.value}#{self.limited_by}" if self.limited_by else self.kind.value
        text = f"{kind}:{self.subject}" if self.subject else kind
        return f"{self.tenant}/{text}" if self.tenant else text

    @property
    def user(self) -> str:
        """The name with which the caller speaks and writes; "" if the server cannot tell callers apart."""
        return self.subject if self.kind is PrincipalKind.TOKEN or self.kind in STORED_KINDS else ""

    @property
    def caller(self) -> str:
        """The name that separates this caller's requests and queues from those of others; "" if the server
        cannot tell its callers apart."""
        if self.kind is PrincipalKind.TOKEN:
            return self.subject
        # No token's name begins with a space.
        return f" {self.tenant}/{self.kind.value}:{self.subject}" if self.kind in STORED_KINDS else ""


ANONYMOUS: Final = Principal(kind=PrincipalKind.ANONYMOUS, permissions=ALL)
"""Every caller of a server without tokens. It has every permission."""

SERVER: Final = Principal(kind=PrincipalKind.SERVER, permissions=ALL)
"""The server, for work that no caller started."""


def server_in(tenant_id: str) -> Principal:
    """Return the server for its work in a tenant."""
    return Principal(kind=PrincipalKind.SERVER, tenant=tenant_id, permissions=ALL) if tenant_id else SERVER


def server_part(name: str, tenant_id: str = "") -> Principal:
    """Return the principal of one part of the server, such as ``retention``, for its work in a tenant."""
    return Principal(kind=PrincipalKind.SERVER, subject=name, tenant=tenant_id, permissions=ALL)


def recorded_principal(text: str) -> Principal | None:
    """Return the principal that a record names, without permissions.

    None if it is unknown: records of earlier versions name none. A kind of a later version is unknown too.
    """
    head, _, subject = text.partition(":")
    tenant, _, kind = head.rpartition("/")
    kind, _, key_id = kind.partition("#")
    if kind not in _KINDS:
        return None
    return Principal(kind=PrincipalKind(kind), subject=subject, tenant=tenant, limited_by=key_id)


_KINDS: Final = frozenset(kind.value for kind in PrincipalKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedCall:
    """Facts about a call that the audit keeps, beside its principal: its method, the id of its key, the
    address of its client and the id of its trace; "" without one."""

    method: str
    key_id: str = ""
    peer: str = ""
    trace_id: str = ""
