"""Stores are reached through ``stores.of(principal)``: services hold views of one access scope."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

from tests.architecture.sources import SERVER, files, text
from tests.architecture.test_imports import imports, module_of
from wonder_server.compose.stores import InternalStores, StoreAdapters, Stores, StoreViews
from wonder_server.ports import scoped
from wonder_server.ports.access import AccessScope

RAW_PORTS: dict[str, tuple[str, ...]] = {
    "wonder_server.ports.records.Records": (),
    "wonder_server.ports.accounts.Accounts": (),
    "wonder_server.ports.catalog.Catalog": (),
    "wonder_server.ports.catalog.Agents": (),
    "wonder_server.ports.catalog.Definitions": (),
    "wonder_server.ports.catalog.Projects": (),
    "wonder_server.ports.catalog.Changes": (),
    "wonder_server.ports.memories.Memories": (),
    "wonder_server.ports.vectors.VectorSource": (),
    "wonder_server.ports.journal.Journals": (),
    # The journal of a shard, for its loop and for the streams of its actors. A dry run has one of its own.
    "wonder_server.ports.journal.Journal": (
        "wonder_server.actors.runtime",
        "wonder_server.actors.streaming.attachment",
        "wonder_server.actors.dispatch.dry_run",
    ),
    # A conversation as a whole, which the server moves to the object store and back.
    "wonder_server.ports.archives.Archives": ("wonder_server.actors.archive",),
    # The server's own upkeep: of vectors after a change of embedder, of deleted agents and of objects.
    "wonder_server.ports.vectors.Reembedding": ("wonder_server.services.memory.reembedding",),
    "wonder_server.ports.vectors.Vectors": (
        "wonder_server.services.memory.reembedding",
        "wonder_server.services.memory.garbage_collection",
    ),
    "wonder_server.ports.memories.MemoryMaintenance": (
        "wonder_server.services.memory.garbage_collection",
        "wonder_server.services.memory.large_contents",
    ),
    # Copies of code: their projects are found through views (`services.content.checkout`).
    "wonder_server.ports.repositories.Repositories": ("wonder_server.services.content.checkout",),
}
"""Ports of stores without a scope, and the modules that may name them besides those of `EVERYWHERE`."""

EVERYWHERE = ("wonder_server.compose", "wonder_server.adapters", "wonder_server.ports")


@pytest.mark.parametrize("port", RAW_PORTS)
def test_only_compose_and_adapters_name_ports_without_a_scope(port: str) -> None:
    allowed = (*EVERYWHERE, *RAW_PORTS[port])
    users = {module_of(path) for path in files(SERVER) if port in imports(path)}
    assert {user for user in users if not user.startswith(allowed)} == set()
    assert {each for each in RAW_PORTS[port] if not any(user.startswith(each) for user in users)} == set()


def test_stores_give_views_and_the_ports_of_internal_work_only() -> None:
    public = {name for name, _ in inspect.getmembers(Stores) if not name.startswith("_")}
    assert public == {"of", "per_scope", "internal"}
    raw = {field.name for field in dataclasses.fields(StoreAdapters)} - {"internal"}
    assert raw.isdisjoint(field.name for field in dataclasses.fields(InternalStores))
    assert raw <= {field.name for field in dataclasses.fields(StoreViews)}


def test_a_store_without_a_scope_is_no_view() -> None:
    for name, port in inspect.getmembers(scoped, inspect.isclass):
        if name.startswith("Scoped"):
            assert isinstance(inspect.getattr_static(port, "scope"), property), name


def test_only_compose_names_access_scopes() -> None:
    named = ("AccessScope", "ALL_RECORDS")
    services = "wonder_server.services.tenancy.scopes", "wonder_server.services.tenancy.tenants"
    makers = ("wonder_server.ports.access", *services)
    users = {module_of(path) for path in files(SERVER) if any(name in text(path) for name in named)}
    assert {user for user in users if not user.startswith((*EVERYWHERE, *makers))} == set()
    assert AccessScope.__dataclass_params__.frozen  # type: ignore[attr-defined]


WORKS_AS_THE_SERVER = {
    "core.identity": "defines it",
    "core.idempotency": "origin of the server's own changes",
    "ports.access": "the view of everything; work that an earlier version started",
    "compose.runtime": "loops, handlers, archiving, sweeps",
    "compose.services": "upkeep of memories, the standard library",
    "compose.server": "resumption, orphaned worktrees",
    "compose.tenancy": "projects that role bindings name, on a server without tenants",
    "actors.conversation.lifecycle": "key of the record of a merge, which the server repeats",
    "actors.conversation.deletions": "runs of a conversation whose record is damaged",
    "actors.dispatch.agent_calls": "calls that nothing waits for",
    "actors.dispatch.handlers": "runs that nothing waits for",
}
"""Modules that name the principal of the server, and its work there."""


def test_internal_work_names_the_principal_of_the_server() -> None:
    users = {
        module_of(path).removeprefix("wonder_server.")
        for path in files(SERVER)
        if "wonder_server.core.identity.SERVER" in imports(path) or module_of(path).endswith("core.identity")
    }
    assert users == WORKS_AS_THE_SERVER.keys()
