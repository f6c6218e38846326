"""The IdentityService: who calls, principals, keys, role bindings, and the audit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeVar

from google.protobuf.message import Message

from wonder.v1 import identity_service_pb2 as pb
from wonder_server.core.errors import Reason, error
from wonder_server.core.tenancy.audit import AuditQuery
from wonder_server.core.tenancy.resources import (
    DEFAULT,
    SERVER_TENANT,
    ApiKey,
    RoleBinding,
    StoredPrincipal,
    Tenant,
)
from wonder_server.ports.tenancy import Audit, TenancyStore
from wonder_server.rpc.identity import codec
from wonder_server.rpc.server.authorization import require_permission
from wonder_server.rpc.shared.call_context import CallContext
from wonder_server.rpc.shared.common_codec import set_principal
from wonder_server.rpc.shared.fields import bounded, required
from wonder_server.rpc.shared.pages import encode_page, page_from_rows, page_request
from wonder_server.rpc.shared.principal import current_caller, current_principal
from wonder_server.rpc.shared.request_keys import audited_call, message_origin
from wonder_server.rpc.shared.times import from_timestamp
from wonder_server.services.paging import page
from wonder_server.services.tenancy.administration import (
    DEFAULT_GRACE_MS,
    Administration,
    ProjectLookup,
)
from wonder_server.services.tenancy.changes import CallFacts
from wonder_server.services.tenancy.directory import PrincipalDirectory

T = TypeVar("T", Tenant, StoredPrincipal, ApiKey, RoleBinding)
M = TypeVar("M", bound=Message)
ListRequest: TypeAlias = (
    pb.ListTenantsRequest | pb.ListPrincipalsRequest | pb.ListKeysRequest | pb.ListRoleBindingsRequest
)


class IdentityServicer:
    """Methods of the IdentityService; see ``identity_service.proto``."""

    def __init__(
        self,
        administration: Administration,
        directory: PrincipalDirectory,
        store: TenancyStore,
        audit: Audit,
        projects: Callable[[str], ProjectLookup],
    ) -> None:
        self._administration = administration
        self._directory = directory
        self._store = store
        self._audit = audit
        self._projects = projects

    async def who_am_i(self, _request: pb.WhoAmIRequest, _context: CallContext) -> pb.WhoAmIResponse:
        principal, caller = current_principal.get(), current_caller.get()
        response = pb.WhoAmIResponse()
        set_principal(response.principal, principal.text)
        response.tenant.CopyFrom(codec.tenant_to_proto(self._administration.tenant(principal.tenant)))
        if caller is None:
            response.permissions.extend(sorted(principal.permissions))
            return response
        if caller.stored is not None:
            response.stored.CopyFrom(codec.principal_to_proto(caller.stored))
        if caller.key is not None:
            used = await self._store.last_used([caller.key.id])
            response.key.CopyFrom(codec.key_to_proto(caller.key, used.get(caller.key.id, 0)))
        response.role_bindings.extend(map(codec.binding_to_proto, caller.bindings))
        grants = caller.grants
        response.permissions.extend(sorted(grants.server | grants.tenant))
        for project_id, held in sorted(grants.projects.items()):
            response.project_permissions.add(project_id=project_id, permissions=sorted(held))
        return response

    async def create_tenant(
        self, request: pb.CreateTenantRequest, context: CallContext
    ) -> pb.CreateTenantResponse:
        required(request.tenant.name, "tenant.name")
        wanted = Tenant(id="", name=request.tenant.name, description=request.tenant.description)
        made = await self._administration.create_tenant(
            wanted, message_origin(request), _facts("CreateTenant", context)
        )
        return pb.CreateTenantResponse(tenant=codec.tenant_to_proto(made))

    async def get_tenant(self, request: pb.GetTenantRequest, _context: CallContext) -> pb.GetTenantResponse:
        return pb.GetTenantResponse(tenant=codec.tenant_to_proto(self._tenant(request.tenant)))

    async def list_tenants(
        self, request: pb.ListTenantsRequest, _context: CallContext
    ) -> pb.ListTenantsResponse:
        reach = _reach()
        found = [each for each in (DEFAULT, *self._directory.tenants.values()) if reach in (None, each.id)]
        rows, token = await self._page(request, found, ["tenants"], codec.tenant_to_proto)
        return pb.ListTenantsResponse(tenants=rows, next_page_token=token)

    async def update_tenant(
        self, request: pb.UpdateTenantRequest, context: CallContext
    ) -> pb.UpdateTenantResponse:
        wanted = request.tenant
        made = await self._administration.update_tenant(
            required(wanted.id or wanted.name, "tenant.id"),
            wanted.description,
            wanted.etag,
            message_origin(request),
            _facts("UpdateTenant", context),
        )
        return pb.UpdateTenantResponse(tenant=codec.tenant_to_proto(made))

    async def create_principal(
        self, request: pb.CreatePrincipalRequest, context: CallContext
    ) -> pb.CreatePrincipalResponse:
        required(request.principal.name, "principal.name")
        wanted = codec.principal_from_proto(request.principal)
        made = await self._administration.create_principal(
            wanted, message_origin(request), _facts("CreatePrincipal", context)
        )
        return pb.CreatePrincipalResponse(principal=codec.principal_to_proto(made))

    async def get_principal(
        self, request: pb.GetPrincipalRequest, _context: CallContext
    ) -> pb.GetPrincipalResponse:
        principal_id = required(request.principal_id, "principal_id")
        found = self._administration.principal(principal_id, reach=_reach())
        return pb.GetPrincipalResponse(principal=codec.principal_to_proto(found))

    async def list_principals(
        self, request: pb.ListPrincipalsRequest, _context: CallContext
    ) -> pb.ListPrincipalsResponse:
        kind = codec.KINDS.get(request.kind)
        if request.kind and kind is None:
            raise error(
                Reason.FIELD_INVALID, "kind must be USER, SERVICE, WORKER or NODE, or unset.", field="kind"
            )
        tenant_id = self._tenant(request.tenant).id
        found = [
            each
            for each in self._directory.principals.values()
            if not each.deleted and kind in (None, each.kind) and each.tenant_id == tenant_id
        ]
        scope = ["principals", tenant_id, str(kind)]
        rows, token = await self._page(request, found, scope, codec.principal_to_proto)
        return pb.ListPrincipalsResponse(principals=rows, next_page_token=token)

    async def update_principal(
        self, request: pb.UpdatePrincipalRequest, context: CallContext
    ) -> pb.UpdatePrincipalResponse:
        made = await self._administration.update_principal(
            required(request.principal.id, "principal.id"),
            codec.principal_edit(request.principal, request.update_mask),
            request.principal.etag,
            message_origin(request),
            _facts("UpdatePrincipal", context),
        )
        return pb.UpdatePrincipalResponse(principal=codec.principal_to_proto(made))

    async def delete_principal(
        self, request: pb.DeletePrincipalRequest, context: CallContext
    ) -> pb.DeletePrincipalResponse:
        await self._administration.delete_principal(
            required(request.principal_id, "principal_id"),
            request.etag,
            message_origin(request),
            _facts("DeletePrincipal", context),
        )
        return pb.DeletePrincipalResponse()

    async def create_key(self, request: pb.CreateKeyRequest, context: CallContext) -> pb.CreateKeyResponse:
        required(request.key.principal_id, "key.principal_id")
        made = await self._administration.create_key(
            codec.key_from_proto(request.key), message_origin(request), _facts("CreateKey", context)
        )
        return pb.CreateKeyResponse(key=codec.key_to_proto(made.key), token=made.token)

    async def list_keys(self, request: pb.ListKeysRequest, _context: CallContext) -> pb.ListKeysResponse:
        if request.principal_id:
            tenant_id = self._administration.principal(request.principal_id, reach=_reach()).tenant_id
            found = self._directory.keys_of(request.principal_id)
        else:
            tenant_id = self._tenant(request.tenant).id
            found = [each for each in self._directory.keys.values() if each.tenant_id == tenant_id]
        used = await self._store.last_used([key.id for key in found])
        rows, token = await self._page(
            request,
            found,
            ["keys", tenant_id, request.principal_id],
            lambda key: codec.key_to_proto(key, used.get(key.id, 0)),
        )
        return pb.ListKeysResponse(keys=rows, next_page_token=token)

    async def rotate_key(self, request: pb.RotateKeyRequest, context: CallContext) -> pb.RotateKeyResponse:
        caller = current_caller.get()
        own = caller.key.id if caller is not None and caller.key is not None else ""
        key_id = request.key_id or own
        if not key_id:
            raise error(Reason.FIELD_INVALID, "The call has no key of its own: give key_id.", field="key_id")
        if key_id != own:
            require_permission("keys.write", "key_id is not the key of the call.", "key_id")
        grace = request.grace
        grace_ms = grace.seconds * 1000 + grace.nanos // 1_000_000
        made = await self._administration.rotate_key(
            key_id,
            grace_ms if request.HasField("grace") else DEFAULT_GRACE_MS,
            from_timestamp(request.expire_time, "expire_time"),
            message_origin(request),
            _facts("RotateKey", context),
        )
        response = pb.RotateKeyResponse(key=codec.key_to_proto(made.key), token=made.token)
        if made.replaced is not None:
            response.replaced_key.CopyFrom(codec.key_to_proto(made.replaced))
        return response

    async def revoke_key(self, request: pb.RevokeKeyRequest, context: CallContext) -> pb.RevokeKeyResponse:
        key = await self._administration.revoke_key(
            required(request.key_id, "key_id"), message_origin(request), _facts("RevokeKey", context)
        )
        return pb.RevokeKeyResponse(key=codec.key_to_proto(key))

    async def create_role_binding(
        self, request: pb.CreateRoleBindingRequest, context: CallContext
    ) -> pb.CreateRoleBindingResponse:
        wanted = codec.binding_from_proto(request.role_binding)
        made = await self._administration.create_binding(
            wanted, message_origin(request), _facts("CreateRoleBinding", context)
        )
        return pb.CreateRoleBindingResponse(role_binding=codec.binding_to_proto(made))

    async def list_role_bindings(
        self, request: pb.ListRoleBindingsRequest, _context: CallContext
    ) -> pb.ListRoleBindingsResponse:
        reach = _reach()
        tenant_id = self._tenant(request.tenant).id
        if request.principal_id:
            tenant_id = self._administration.principal(request.principal_id, reach=reach).tenant_id
        lookup = self._projects(tenant_id)
        project_id = request.project and (await lookup.project(request.project, field="project")).id
        # Roles on the server are for those to see who have one.
        tenants = (tenant_id,) if reach is not None else (tenant_id, SERVER_TENANT)
        found = [
            each
            for each in self._directory.bindings.values()
            if request.principal_id in ("", each.principal_id)
            and each.tenant_id in tenants
            and (not project_id or each.project_id in ("", project_id))
        ]
        scope = ["roles", tenant_id, project_id, request.principal_id]
        rows, token = await self._page(request, found, scope, codec.binding_to_proto)
        return pb.ListRoleBindingsResponse(role_bindings=rows, next_page_token=token)

    async def delete_role_binding(
        self, request: pb.DeleteRoleBindingRequest, context: CallContext
    ) -> pb.DeleteRoleBindingResponse:
        await self._administration.delete_binding(
            required(request.role_binding_id, "role_binding_id"),
            message_origin(request),
            _facts("DeleteRoleBinding", context),
        )
        return pb.DeleteRoleBindingResponse()

    async def list_audit_entries(
        self, request: pb.ListAuditEntriesRequest, _context: CallContext
    ) -> pb.ListAuditEntriesResponse:
        texts = [request.principal, request.method, request.resource, request.project_id]
        for name, text in zip(("principal", "method", "resource", "project_id"), texts, strict=True):
            bounded(text, name)
        start = from_timestamp(request.start_time, "start_time")
        end = from_timestamp(request.end_time, "end_time")
        tenant_id = self._tenant(request.tenant).id
        scope = ["audit", tenant_id, *texts, request.outcome, start, end]
        paging = page_request(request)
        limit = paging.limit()
        found = await self._audit.entries(
            AuditQuery(
                tenant_id=tenant_id,
                principal=request.principal,
                method=request.method,
                resource=request.resource,
                project_id=request.project_id,
                outcome=codec.OUTCOMES.get(request.outcome),
                start_ms=start,
                end_ms=end,
                before=paging.cursor(scope, ""),
                limit=limit + 1,
            )
        )
        rows, token = await page_from_rows(found, limit, scope, lambda entry: entry.id, codec.entry_to_proto)
        return pb.ListAuditEntriesResponse(entries=rows, next_page_token=token)

    def _tenant(self, key: str) -> Tenant:
        """Return a tenant that the caller administers; an empty key is its own. Raises TENANT_NOT_FOUND."""
        return self._administration.tenant(key or current_principal.get().tenant, reach=_reach())

    async def _page(
        self,
        request: ListRequest,
        found: Iterable[T],
        scope: list[str],
        encode: Callable[[T], M],
    ) -> tuple[list[M], str]:
        """Return one page of resources that are in memory, newest first, and the token of the next."""
        paging = page_request(request)
        limit = paging.limit()
        after = paging.cursor(scope, "")
        rows = sorted(found, key=_position, reverse=True)
        if after:
            rows = [each for each in rows if _position(each) < after]
        return await encode_page(page(rows[: limit + 1], limit, scope, _position), encode)


def _reach() -> str | None:
    """Return the tenant whose resources the call administers: its own, or None, every tenant, for an
    administrator of the server."""
    caller, principal = current_caller.get(), current_principal.get()
    if caller is None or principal.permission in caller.grants.server:
        return None
    return principal.tenant


def _position(resource: Tenant | StoredPrincipal | ApiKey | RoleBinding) -> str:
    return f"{resource.created_ms:015} {resource.id}"


def _facts(method: str, context: CallContext) -> CallFacts:
    return CallFacts(**dataclasses.asdict(audited_call(method, context)), reach=_reach())
