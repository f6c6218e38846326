"""Stores of tenants, principals, keys and role bindings, and audits: one suite for both ports of
`wonder_server.ports.tenancy`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from wonder_server.adapters.in_memory.tenancy import MemoryTenancy
from wonder_server.adapters.sqlite.catalog.store import SqliteCatalog
from wonder_server.adapters.sqlite.catalog.tenancy import SqliteTenancy
from wonder_server.core.access.permissions import Role
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.identity import PrincipalKind
from wonder_server.core.tenancy.audit import AuditEntry, AuditOutcome, AuditQuery
from wonder_server.core.tenancy.resources import (
    SERVER_TENANT,
    AccessResource,
    ApiKey,
    RoleBinding,
    StoredPrincipal,
    Tenant,
)
from wonder_server.ports.catalog import Answer
from wonder_server.ports.tenancy import DropAccess, PutAccess, StoredTenancy

Store = MemoryTenancy | SqliteTenancy

ACME = Tenant(id="tnt_1", name="acme", created_ms=5, updated_by="token:root")
ANN = StoredPrincipal(
    id="prin_1", tenant_id=ACME.id, kind=PrincipalKind.USER, name="ann", external="https://idp ann-7"
)
BOT = StoredPrincipal(id="prin_2", tenant_id=ACME.id, kind=PrincipalKind.SERVICE, name="bot")
KEY = ApiKey(
    id="key_1",
    tenant_id=ACME.id,
    principal_id=BOT.id,
    digest="ab" * 32,
    scopes=("conversations.*",),
    project_ids=("proj_1",),
    expires_ms=99,
)
BINDING = RoleBinding(
    id="role_1", tenant_id=ACME.id, role=Role.MEMBER, principal_id=ANN.id, project_id="proj_1"
)
ALL = (ACME, ANN, BOT, KEY, BINDING)


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "memory":
        yield MemoryTenancy()
        return
    catalog = await SqliteCatalog.open(tmp_path / "catalog.db")
    yield SqliteTenancy(catalog)
    await catalog.close()


def entry(number: int, **fields: object) -> AuditEntry:
    values: dict[str, object] = {
        "id": f"aud_{number:02}",
        "at_ms": number * 10,
        "tenant_id": ACME.id,
        "principal": "acme/user:ann",
        "method": "CreateKey",
        "resource": KEY.id,
    }
    return AuditEntry(**(values | fields))  # type: ignore[arg-type]


async def put(store: Store, *resources: AccessResource) -> None:
    await store.commit([PutAccess(each) for each in resources])


async def refused(store: Store, reason: Reason, *resources: AccessResource) -> None:
    before = await store.load()
    with pytest.raises(WonderError) as caught:
        await put(store, *resources)
    assert caught.value.fault.reason is reason
    assert await store.load() == before


async def test_everything_is_loaded_as_it_was_stored(store: Store) -> None:
    await put(store, *ALL)
    assert await store.load() == StoredTenancy(
        tenants=[ACME], principals=[ANN, BOT], keys=[KEY], bindings=[BINDING]
    )


async def test_a_change_follows_the_stored_version(store: Store) -> None:
    await put(store, *ALL)
    changed = replace(KEY, version=2, revoked_ms=50)
    await put(store, changed)
    assert (await store.load()).keys == [changed]
    await refused(store, Reason.ETAG_MISMATCH, changed)
    await refused(store, Reason.ETAG_MISMATCH, replace(KEY, version=4))
    await refused(store, Reason.ALREADY_EXISTS, KEY)


@pytest.mark.parametrize(
    "other",
    [
        replace(ACME, id="tnt_2"),
        replace(ANN, id="prin_3", external=""),
        replace(BOT, id="prin_3", name="cat", external=ANN.external),
        replace(BINDING, id="role_2"),
    ],
    ids=["tenant", "principal", "external name", "binding"],
)
async def test_names_are_unique(store: Store, other: AccessResource) -> None:
    await put(store, *ALL)
    await refused(store, Reason.ALREADY_EXISTS, other)


async def test_names_are_unique_within_tenant_and_kind_only(store: Store) -> None:
    await put(store, *ALL)
    await put(
        store,
        replace(ANN, id="prin_3", tenant_id=""),
        replace(ANN, id="prin_4", kind=PrincipalKind.SERVICE, external=""),
        replace(BINDING, id="role_2", project_id=""),
        replace(BINDING, id="role_3", tenant_id=SERVER_TENANT, project_id="", role=Role.ADMIN),
        replace(BINDING, id="role_4", principal_id="", group=ANN.id),
    )


async def test_a_commit_is_done_whole_or_not_at_all(store: Store) -> None:
    await put(store, ACME)
    with pytest.raises(WonderError):
        await store.commit([PutAccess(ANN), PutAccess(ACME)], [entry(1)], Answer(
            request_id="r1", fingerprint="f", result={}, created_ms=1
        ))  # fmt: skip
    assert (await store.load()).principals == []
    assert await store.entries(AuditQuery()) == []
    assert await store.answer("r1") is None


async def test_a_deleted_resource_is_gone(store: Store) -> None:
    await put(store, *ALL)
    with pytest.raises(WonderError) as caught:
        await store.commit([DropAccess(replace(BINDING, version=2))])
    assert caught.value.fault.reason is Reason.ETAG_MISMATCH
    await store.commit([DropAccess(BINDING)])
    assert (await store.load()).bindings == []


async def test_an_answer_is_stored_once(store: Store) -> None:
    answer = Answer(request_id="r1", fingerprint="f", result={"id": "key_1"}, created_ms=7)
    await store.commit([PutAccess(ACME)], answer=answer)
    assert await store.answer("r1") == answer
    with pytest.raises(WonderError) as caught:
        await store.commit([PutAccess(ANN)], answer=answer)
    assert caught.value.fault.reason is Reason.REQUEST_ID_REUSED
    assert (await store.load()).principals == []


async def test_the_last_use_of_a_key_changes_no_version_and_never_goes_back(store: Store) -> None:
    await put(store, *ALL)
    await store.touch({KEY.id: 70, "key_9": 80})
    await store.touch({KEY.id: 60})
    assert await store.last_used([KEY.id, "key_9"]) == {KEY.id: 70}
    assert (await store.load()).keys == [KEY]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (AuditQuery(), [4, 3, 2, 1]),
        (AuditQuery(limit=2), [4, 3]),
        (AuditQuery(before="aud_03"), [2, 1]),
        (AuditQuery(tenant_id=""), [4]),
        (AuditQuery(tenant_id=ACME.id), [3, 2, 1]),
        (AuditQuery(principal="acme/user:bob"), [2]),
        (AuditQuery(method="RevokeKey"), [3]),
        (AuditQuery(resource="proj_1"), [3]),
        (AuditQuery(outcome=AuditOutcome.REFUSED), [2]),
        (AuditQuery(start_ms=20, end_ms=40), [3, 2]),
        (AuditQuery(project_id="proj_9"), []),
    ],
)
async def test_entries_are_selected(store: Store, query: AuditQuery, found: list[int]) -> None:
    entries = {
        1: entry(1, details={"label": "ci"}),
        2: entry(2, principal="acme/user:bob", outcome=AuditOutcome.REFUSED, repeats=3),
        3: entry(3, method="RevokeKey", resource="proj_1"),
        4: entry(4, tenant_id=""),
    }
    await store.commit((), list(entries.values())[:2])
    await store.record(list(entries.values())[2:])
    assert await store.entries(query) == [entries[number] for number in found]


async def test_old_entries_are_forgotten(store: Store) -> None:
    await store.record([entry(1), entry(2), entry(3)])
    assert await store.forget_before(30) == 2
    assert [each.id for each in await store.entries(AuditQuery())] == ["aud_03"]
