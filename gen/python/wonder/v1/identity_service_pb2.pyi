# mypy: ignore-errors
import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import field_mask_pb2 as _field_mask_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from wonder.v1 import access_pb2 as _access_pb2
from wonder.v1 import common_pb2 as _common_pb2
from wonder.v1 import identity_pb2 as _identity_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ProjectPermissions(_message.Message):
    __slots__ = ("project_id", "permissions")
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    project_id: str
    permissions: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, project_id: _Optional[str] = ..., permissions: _Optional[_Iterable[str]] = ...) -> None: ...

class WhoAmIRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WhoAmIResponse(_message.Message):
    __slots__ = ("principal", "stored", "tenant", "key", "role_bindings", "permissions", "project_permissions")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    ROLE_BINDINGS_FIELD_NUMBER: _ClassVar[int]
    PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    PROJECT_PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    principal: _common_pb2.Principal
    stored: _identity_pb2.StoredPrincipal
    tenant: _identity_pb2.Tenant
    key: _identity_pb2.ApiKey
    role_bindings: _containers.RepeatedCompositeFieldContainer[_identity_pb2.RoleBinding]
    permissions: _containers.RepeatedScalarFieldContainer[str]
    project_permissions: _containers.RepeatedCompositeFieldContainer[ProjectPermissions]
    def __init__(self, principal: _Optional[_Union[_common_pb2.Principal, _Mapping]] = ..., stored: _Optional[_Union[_identity_pb2.StoredPrincipal, _Mapping]] = ..., tenant: _Optional[_Union[_identity_pb2.Tenant, _Mapping]] = ..., key: _Optional[_Union[_identity_pb2.ApiKey, _Mapping]] = ..., role_bindings: _Optional[_Iterable[_Union[_identity_pb2.RoleBinding, _Mapping]]] = ..., permissions: _Optional[_Iterable[str]] = ..., project_permissions: _Optional[_Iterable[_Union[ProjectPermissions, _Mapping]]] = ...) -> None: ...

class CreateTenantRequest(_message.Message):
    __slots__ = ("tenant", "request_id")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    tenant: _identity_pb2.Tenant
    request_id: str
    def __init__(self, tenant: _Optional[_Union[_identity_pb2.Tenant, _Mapping]] = ..., request_id: _Optional[str] = ...) -> None: ...

class CreateTenantResponse(_message.Message):
    __slots__ = ("tenant",)
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: _identity_pb2.Tenant
    def __init__(self, tenant: _Optional[_Union[_identity_pb2.Tenant, _Mapping]] = ...) -> None: ...

class GetTenantRequest(_message.Message):
    __slots__ = ("tenant",)
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    def __init__(self, tenant: _Optional[str] = ...) -> None: ...

class GetTenantResponse(_message.Message):
    __slots__ = ("tenant",)
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: _identity_pb2.Tenant
    def __init__(self, tenant: _Optional[_Union[_identity_pb2.Tenant, _Mapping]] = ...) -> None: ...

class ListTenantsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListTenantsResponse(_message.Message):
    __slots__ = ("tenants", "next_page_token")
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tenants: _containers.RepeatedCompositeFieldContainer[_identity_pb2.Tenant]
    next_page_token: str
    def __init__(self, tenants: _Optional[_Iterable[_Union[_identity_pb2.Tenant, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class UpdateTenantRequest(_message.Message):
    __slots__ = ("tenant", "request_id")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    tenant: _identity_pb2.Tenant
    request_id: str
    def __init__(self, tenant: _Optional[_Union[_identity_pb2.Tenant, _Mapping]] = ..., request_id: _Optional[str] = ...) -> None: ...

class UpdateTenantResponse(_message.Message):
    __slots__ = ("tenant",)
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: _identity_pb2.Tenant
    def __init__(self, tenant: _Optional[_Union[_identity_pb2.Tenant, _Mapping]] = ...) -> None: ...

class CreatePrincipalRequest(_message.Message):
    __slots__ = ("principal", "request_id")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    principal: _identity_pb2.StoredPrincipal
    request_id: str
    def __init__(self, principal: _Optional[_Union[_identity_pb2.StoredPrincipal, _Mapping]] = ..., request_id: _Optional[str] = ...) -> None: ...

class CreatePrincipalResponse(_message.Message):
    __slots__ = ("principal",)
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    principal: _identity_pb2.StoredPrincipal
    def __init__(self, principal: _Optional[_Union[_identity_pb2.StoredPrincipal, _Mapping]] = ...) -> None: ...

class GetPrincipalRequest(_message.Message):
    __slots__ = ("principal_id",)
    PRINCIPAL_ID_FIELD_NUMBER: _ClassVar[int]
    principal_id: str
    def __init__(self, principal_id: _Optional[str] = ...) -> None: ...

class GetPrincipalResponse(_message.Message):
    __slots__ = ("principal",)
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    principal: _identity_pb2.StoredPrincipal
    def __init__(self, principal: _Optional[_Union[_identity_pb2.StoredPrincipal, _Mapping]] = ...) -> None: ...

class ListPrincipalsRequest(_message.Message):
    __slots__ = ("tenant", "kind", "page_size", "page_token")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    kind: _common_pb2.PrincipalKind
    page_size: int
    page_token: str
    def __init__(self, tenant: _Optional[str] = ..., kind: _Optional[_Union[_common_pb2.PrincipalKind, str]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListPrincipalsResponse(_message.Message):
    __slots__ = ("principals", "next_page_token")
    PRINCIPALS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    principals: _containers.RepeatedCompositeFieldContainer[_identity_pb2.StoredPrincipal]
    next_page_token: str
    def __init__(self, principals: _Optional[_Iterable[_Union[_identity_pb2.StoredPrincipal, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class UpdatePrincipalRequest(_message.Message):
    __slots__ = ("principal", "update_mask", "request_id")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    UPDATE_MASK_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    principal: _identity_pb2.StoredPrincipal
    update_mask: _field_mask_pb2.FieldMask
    request_id: str
    def __init__(self, principal: _Optional[_Union[_identity_pb2.StoredPrincipal, _Mapping]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ..., request_id: _Optional[str] = ...) -> None: ...

class UpdatePrincipalResponse(_message.Message):
    __slots__ = ("principal",)
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    principal: _identity_pb2.StoredPrincipal
    def __init__(self, principal: _Optional[_Union[_identity_pb2.StoredPrincipal, _Mapping]] = ...) -> None: ...

class DeletePrincipalRequest(_message.Message):
    __slots__ = ("principal_id", "etag", "request_id")
    PRINCIPAL_ID_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    principal_id: str
    etag: str
    request_id: str
    def __init__(self, principal_id: _Optional[str] = ..., etag: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class DeletePrincipalResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CreateKeyRequest(_message.Message):
    __slots__ = ("key", "request_id")
    KEY_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    key: _identity_pb2.ApiKey
    request_id: str
    def __init__(self, key: _Optional[_Union[_identity_pb2.ApiKey, _Mapping]] = ..., request_id: _Optional[str] = ...) -> None: ...

class CreateKeyResponse(_message.Message):
    __slots__ = ("key", "token")
    KEY_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    key: _identity_pb2.ApiKey
    token: str
    def __init__(self, key: _Optional[_Union[_identity_pb2.ApiKey, _Mapping]] = ..., token: _Optional[str] = ...) -> None: ...

class ListKeysRequest(_message.Message):
    __slots__ = ("tenant", "principal_id", "page_size", "page_token")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    principal_id: str
    page_size: int
    page_token: str
    def __init__(self, tenant: _Optional[str] = ..., principal_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListKeysResponse(_message.Message):
    __slots__ = ("keys", "next_page_token")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedCompositeFieldContainer[_identity_pb2.ApiKey]
    next_page_token: str
    def __init__(self, keys: _Optional[_Iterable[_Union[_identity_pb2.ApiKey, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class RotateKeyRequest(_message.Message):
    __slots__ = ("key_id", "grace", "expire_time", "request_id")
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    key_id: str
    grace: _duration_pb2.Duration
    expire_time: _timestamp_pb2.Timestamp
    request_id: str
    def __init__(self, key_id: _Optional[str] = ..., grace: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., request_id: _Optional[str] = ...) -> None: ...

class RotateKeyResponse(_message.Message):
    __slots__ = ("key", "token", "replaced_key")
    KEY_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    REPLACED_KEY_FIELD_NUMBER: _ClassVar[int]
    key: _identity_pb2.ApiKey
    token: str
    replaced_key: _identity_pb2.ApiKey
    def __init__(self, key: _Optional[_Union[_identity_pb2.ApiKey, _Mapping]] = ..., token: _Optional[str] = ..., replaced_key: _Optional[_Union[_identity_pb2.ApiKey, _Mapping]] = ...) -> None: ...

class RevokeKeyRequest(_message.Message):
    __slots__ = ("key_id", "request_id")
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    key_id: str
    request_id: str
    def __init__(self, key_id: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class RevokeKeyResponse(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: _identity_pb2.ApiKey
    def __init__(self, key: _Optional[_Union[_identity_pb2.ApiKey, _Mapping]] = ...) -> None: ...

class CreateRoleBindingRequest(_message.Message):
    __slots__ = ("role_binding", "request_id")
    ROLE_BINDING_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    role_binding: _identity_pb2.RoleBinding
    request_id: str
    def __init__(self, role_binding: _Optional[_Union[_identity_pb2.RoleBinding, _Mapping]] = ..., request_id: _Optional[str] = ...) -> None: ...

class CreateRoleBindingResponse(_message.Message):
    __slots__ = ("role_binding",)
    ROLE_BINDING_FIELD_NUMBER: _ClassVar[int]
    role_binding: _identity_pb2.RoleBinding
    def __init__(self, role_binding: _Optional[_Union[_identity_pb2.RoleBinding, _Mapping]] = ...) -> None: ...

class ListRoleBindingsRequest(_message.Message):
    __slots__ = ("tenant", "project", "principal_id", "page_size", "page_token")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    project: str
    principal_id: str
    page_size: int
    page_token: str
    def __init__(self, tenant: _Optional[str] = ..., project: _Optional[str] = ..., principal_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListRoleBindingsResponse(_message.Message):
    __slots__ = ("role_bindings", "next_page_token")
    ROLE_BINDINGS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    role_bindings: _containers.RepeatedCompositeFieldContainer[_identity_pb2.RoleBinding]
    next_page_token: str
    def __init__(self, role_bindings: _Optional[_Iterable[_Union[_identity_pb2.RoleBinding, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeleteRoleBindingRequest(_message.Message):
    __slots__ = ("role_binding_id", "request_id")
    ROLE_BINDING_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    role_binding_id: str
    request_id: str
    def __init__(self, role_binding_id: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class DeleteRoleBindingResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListAuditEntriesRequest(_message.Message):
    __slots__ = ("tenant", "principal", "method", "resource", "project_id", "outcome", "start_time", "end_time", "page_size", "page_token")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    principal: str
    method: str
    resource: str
    project_id: str
    outcome: _identity_pb2.AuditOutcome
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    page_size: int
    page_token: str
    def __init__(self, tenant: _Optional[str] = ..., principal: _Optional[str] = ..., method: _Optional[str] = ..., resource: _Optional[str] = ..., project_id: _Optional[str] = ..., outcome: _Optional[_Union[_identity_pb2.AuditOutcome, str]] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListAuditEntriesResponse(_message.Message):
    __slots__ = ("entries", "next_page_token")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[_identity_pb2.AuditEntry]
    next_page_token: str
    def __init__(self, entries: _Optional[_Iterable[_Union[_identity_pb2.AuditEntry, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
