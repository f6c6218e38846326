"""Audit entries of changes of the catalog."""

from __future__ import annotations

from wonder_server.core.definitions.resources import Agent, File, Library, Project, Resource
from wonder_server.core.idempotency import SERVER_ORIGIN, Origin
from wonder_server.core.identity import AuditedCall, Principal, PrincipalKind
from wonder_server.core.tenancy.audit import AuditEntry
from wonder_server.ports.catalog import Change, Drop, Put
from wonder_server.services.catalog.audit_entries import MAX_NAMED, audit_entries

ANN = Principal(kind=PrincipalKind.USER, subject="ann", tenant="acme")
CALL = AuditedCall(method="UpdateAgent", key_id="k1", peer="ipv4:10.0.0.1:5", trace_id="t1")


def entries(*changes: Change) -> list[AuditEntry]:
    return audit_entries(changes, Origin(ANN, "r1", "f", CALL), 1_000)


def agent(number: int = 1, version: int = 1, projects: tuple[str, ...] = ("proj_1",)) -> Agent:
    return Agent(id=f"agt_{number}", name=f"a{number}", project_ids=projects, version=version)


def test_an_entry_has_who_what_and_from_where_and_no_content() -> None:
    (entry,) = entries(Put(agent(version=3)))
    assert (entry.tenant_id, entry.principal, entry.method) == ("acme", ANN.text, "UpdateAgent")
    assert (entry.key_id, entry.peer, entry.trace_id) == ("k1", "ipv4:10.0.0.1:5", "t1")
    assert (entry.resource, entry.project_id, entry.request_id) == ("agt_1", "proj_1", "r1")
    assert entry.details == {"count": "1", "changed": "agent a1"}


def test_a_library_that_changes_with_its_content_is_not_named() -> None:
    library = Library(id="lib_1", name="acme/tools", version=2)
    (entry,) = entries(Put(library), Put(agent()))
    assert entry.resource == "agt_1" and entry.details == {"count": "1", "created": "agent a1"}
    (entry,) = entries(Drop(library))
    assert entry.resource == "lib_1"


def test_many_changes_are_one_entry_that_counts_them() -> None:
    (entry,) = entries(*[Put(agent(number)) for number in range(200)])
    assert entry.resource == "" and entry.project_id == "proj_1"
    assert entry.details["count"] == "200" and entry.details["created"].count("agent") == MAX_NAMED
    (entry,) = entries(Put(agent(1)), Put(agent(2, projects=("proj_2",))))
    assert entry.project_id == ""


def test_each_kind_of_resource_has_its_project() -> None:
    file = File(
        id="file_1",
        project_id="proj_3",
        name="a.png",
        media_type="image/png",
        size_bytes=1,
        sha256="ab" * 32,
        objects=(),
        created_ms=1,
        created_by="x",
    )
    resources: list[tuple[Resource, str]] = [
        (file, "proj_3"),
        (Project(id="proj_4", name="p"), "proj_4"),
        (Library(id="lib_1", name="a/b"), ""),
    ]
    for resource, project in resources:
        (entry,) = entries(Drop(resource))
        assert entry.project_id == project
        assert entry.details["deleted"].endswith(resource.name)


def test_the_servers_own_work_and_calls_without_a_change_have_no_entry() -> None:
    assert audit_entries([Put(agent())], SERVER_ORIGIN, 1) == []
    assert entries() == []
