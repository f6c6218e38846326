# mypy: ignore-errors
import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from wonder.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROLE_UNSPECIFIED: _ClassVar[Role]
    ROLE_ADMIN: _ClassVar[Role]
    ROLE_DEVELOPER: _ClassVar[Role]
    ROLE_MEMBER: _ClassVar[Role]
    ROLE_VIEWER: _ClassVar[Role]
    ROLE_WORKER: _ClassVar[Role]

class AuditOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    AUDIT_OUTCOME_UNSPECIFIED: _ClassVar[AuditOutcome]
    AUDIT_OUTCOME_DONE: _ClassVar[AuditOutcome]
    AUDIT_OUTCOME_REFUSED: _ClassVar[AuditOutcome]
ROLE_UNSPECIFIED: Role
ROLE_ADMIN: Role
ROLE_DEVELOPER: Role
ROLE_MEMBER: Role
ROLE_VIEWER: Role
ROLE_WORKER: Role
AUDIT_OUTCOME_UNSPECIFIED: AuditOutcome
AUDIT_OUTCOME_DONE: AuditOutcome
AUDIT_OUTCOME_REFUSED: AuditOutcome

class Tenant(_message.Message):
    __slots__ = ("id", "name", "description", "create_time", "update_time", "etag", "updated_by")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    UPDATED_BY_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    description: str
    create_time: _timestamp_pb2.Timestamp
    update_time: _timestamp_pb2.Timestamp
    etag: str
    updated_by: _common_pb2.Principal
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., description: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., update_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., etag: _Optional[str] = ..., updated_by: _Optional[_Union[_common_pb2.Principal, _Mapping]] = ...) -> None: ...

class StoredPrincipal(_message.Message):
    __slots__ = ("id", "tenant_id", "kind", "name", "display_name", "external_id", "disabled", "create_time", "update_time", "etag", "updated_by", "groups")
    ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    EXTERNAL_ID_FIELD_NUMBER: _ClassVar[int]
    DISABLED_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    UPDATED_BY_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    id: str
    tenant_id: str
    kind: _common_pb2.PrincipalKind
    name: str
    display_name: str
    external_id: str
    disabled: bool
    create_time: _timestamp_pb2.Timestamp
    update_time: _timestamp_pb2.Timestamp
    etag: str
    updated_by: _common_pb2.Principal
    groups: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., tenant_id: _Optional[str] = ..., kind: _Optional[_Union[_common_pb2.PrincipalKind, str]] = ..., name: _Optional[str] = ..., display_name: _Optional[str] = ..., external_id: _Optional[str] = ..., disabled: _Optional[bool] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., update_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., etag: _Optional[str] = ..., updated_by: _Optional[_Union[_common_pb2.Principal, _Mapping]] = ..., groups: _Optional[_Iterable[str]] = ...) -> None: ...

class ApiKey(_message.Message):
    __slots__ = ("id", "principal_id", "label", "scopes", "project_ids", "expire_time", "revoke_time", "last_use_time", "replaced_by", "create_time", "etag", "updated_by")
    ID_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_ID_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    PROJECT_IDS_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    REVOKE_TIME_FIELD_NUMBER: _ClassVar[int]
    LAST_USE_TIME_FIELD_NUMBER: _ClassVar[int]
    REPLACED_BY_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    UPDATED_BY_FIELD_NUMBER: _ClassVar[int]
    id: str
    principal_id: str
    label: str
    scopes: _containers.RepeatedScalarFieldContainer[str]
    project_ids: _containers.RepeatedScalarFieldContainer[str]
    expire_time: _timestamp_pb2.Timestamp
    revoke_time: _timestamp_pb2.Timestamp
    last_use_time: _timestamp_pb2.Timestamp
    replaced_by: str
    create_time: _timestamp_pb2.Timestamp
    etag: str
    updated_by: _common_pb2.Principal
    def __init__(self, id: _Optional[str] = ..., principal_id: _Optional[str] = ..., label: _Optional[str] = ..., scopes: _Optional[_Iterable[str]] = ..., project_ids: _Optional[_Iterable[str]] = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., revoke_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_use_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., replaced_by: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., etag: _Optional[str] = ..., updated_by: _Optional[_Union[_common_pb2.Principal, _Mapping]] = ...) -> None: ...

class RoleBinding(_message.Message):
    __slots__ = ("id", "role", "project_id", "server", "principal_id", "group", "tenant_id", "create_time", "etag", "updated_by")
    ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    UPDATED_BY_FIELD_NUMBER: _ClassVar[int]
    id: str
    role: Role
    project_id: str
    server: bool
    principal_id: str
    group: str
    tenant_id: str
    create_time: _timestamp_pb2.Timestamp
    etag: str
    updated_by: _common_pb2.Principal
    def __init__(self, id: _Optional[str] = ..., role: _Optional[_Union[Role, str]] = ..., project_id: _Optional[str] = ..., server: _Optional[bool] = ..., principal_id: _Optional[str] = ..., group: _Optional[str] = ..., tenant_id: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., etag: _Optional[str] = ..., updated_by: _Optional[_Union[_common_pb2.Principal, _Mapping]] = ...) -> None: ...

class AuditEntry(_message.Message):
    __slots__ = ("id", "time", "tenant_id", "principal", "key_id", "act_as", "method", "resource", "project_id", "outcome", "reason", "request_id", "peer", "trace_id", "repeats", "details")
    class DetailsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    ACT_AS_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    REPEATS_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    id: str
    time: _timestamp_pb2.Timestamp
    tenant_id: str
    principal: _common_pb2.Principal
    key_id: str
    act_as: str
    method: str
    resource: str
    project_id: str
    outcome: AuditOutcome
    reason: str
    request_id: str
    peer: str
    trace_id: str
    repeats: int
    details: _containers.ScalarMap[str, str]
    def __init__(self, id: _Optional[str] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., tenant_id: _Optional[str] = ..., principal: _Optional[_Union[_common_pb2.Principal, _Mapping]] = ..., key_id: _Optional[str] = ..., act_as: _Optional[str] = ..., method: _Optional[str] = ..., resource: _Optional[str] = ..., project_id: _Optional[str] = ..., outcome: _Optional[_Union[AuditOutcome, str]] = ..., reason: _Optional[str] = ..., request_id: _Optional[str] = ..., peer: _Optional[str] = ..., trace_id: _Optional[str] = ..., repeats: _Optional[int] = ..., details: _Optional[_Mapping[str, str]] = ...) -> None: ...
