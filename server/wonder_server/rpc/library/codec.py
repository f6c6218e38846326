"""Codec of libraries, definitions, agents and projects."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Final

from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message

from wonder.v1 import definition_pb2, library_pb2, library_service_pb2
from wonder_server.core.budget import Account
from wonder_server.core.definitions.document import DefinitionDraft, draft_to_json, parse_draft_lenient
from wonder_server.core.definitions.fault_list import MAX_FAULTS, under
from wonder_server.core.definitions.parse import parse_spec, read_record, to_json
from wonder_server.core.definitions.resources import (
    Agent,
    Definition,
    Library,
    NetworkPolicy,
    Project,
    Repository,
    etag,
)
from wonder_server.core.definitions.specs import Kind, Persona
from wonder_server.core.errors import Fault, Reason, WonderError, error
from wonder_server.core.paths import hide_passwords
from wonder_server.ports.hook_failures import HookFailure
from wonder_server.rpc.library.documents import enum_name, enum_number, fill_from_document, to_document
from wonder_server.rpc.shared.common_codec import (
    budget_from_proto,
    budget_to_proto,
    enum_value,
    set_principal,
    usage_to_proto,
)
from wonder_server.rpc.shared.faults import fault_to_proto
from wonder_server.rpc.shared.payload import dict_to_struct, struct_to_dict
from wonder_server.rpc.shared.times import to_timestamp
from wonder_server.services.catalog.applied import ResourceChange
from wonder_server.services.catalog.definitions import DefinitionChange

AGENT_PATHS: Final = (
    "name", "project_ids", "persona_id", "persona", "description", "metadata", "budget",
)  # fmt: skip
PROJECT_PATHS: Final = ("description", "repositories", "network", "metadata")

_KIND: Final = definition_pb2.DefinitionKind.DESCRIPTOR
_CHANGE: Final = library_service_pb2.DefinitionChangeAction.DESCRIPTOR
_RESOURCE: Final = library_service_pb2.AppliedResource.DESCRIPTOR
_SPECS: Final = frozenset(Kind)


# --- definitions --------------------------------------------------------------------------------------


def draft_from_proto(definition: definition_pb2.Definition, path: str) -> DefinitionDraft:
    """Decode the fields that the author sets; fields that the server sets are ignored.

    Raises DEFINITION_INVALID with every fault's path, which begins with ``path``.
    """
    draft, faults = draft_from_proto_lenient(definition, path)
    if draft is None or faults:
        raise WonderError(faults[0], faults=faults)
    return draft


def draft_from_proto_lenient(
    definition: definition_pb2.Definition, path: str
) -> tuple[DefinitionDraft | None, tuple[Fault, ...]]:
    """Decode as `draft_from_proto`, and return the readable part together with the faults."""
    read = {"kind", "name", "description", "labels", *_SPECS}
    try:
        document = {key: value for key, value in to_document(definition, path).items() if key in read}
    except WonderError as refusal:  # A payload is too deep or too large; the fault has its whole path.
        return None, refusal.faults
    draft, faults = parse_draft_lenient(document)
    return draft, under(path, faults)


def drafts_from_proto(
    definitions: Sequence[definition_pb2.Definition], path: str
) -> tuple[list[DefinitionDraft | None], list[Fault]]:
    """Decode all definitions as far as possible, and return the faults of each."""
    drafts: list[DefinitionDraft | None] = []
    faults: list[Fault] = []
    for index, definition in enumerate(definitions):
        draft, found = draft_from_proto_lenient(definition, f"{path}[{index}]")
        drafts.append(draft)
        faults.extend(found)
        if len(faults) >= MAX_FAULTS:
            break
    return drafts, faults


def draft_to_proto(draft: DefinitionDraft) -> definition_pb2.Definition:
    """Encode the definition as it is written in a file."""
    message = definition_pb2.Definition()
    fill_from_document(message, {**draft_to_json(draft), "kind": str(draft.kind)})
    return message


def definition_to_proto(definition: Definition) -> definition_pb2.Definition:
    """Encode the revision, including the fields that the server sets."""
    message = draft_to_proto(definition.draft)
    message.id = definition.id
    message.library_id = definition.library_id
    message.library = definition.library
    message.revision = definition.revision
    message.content_hash = definition.content_hash
    message.etag = etag(definition)
    _stamp(message, definition)
    return message


def change_to_proto(change: DefinitionChange) -> library_service_pb2.DefinitionChange:
    return library_service_pb2.DefinitionChange(
        action=enum_number(_CHANGE, change.action),  # type: ignore[arg-type]
        kind=enum_number(_KIND, change.kind),  # type: ignore[arg-type]
        name=change.name,
        old_revision=change.old_revision,
        new_revision=change.new_revision,
        diff=change.diff,
    )


def resource_change_to_proto(change: ResourceChange, *, is_saved: bool) -> library_service_pb2.ResourceChange:
    """Encode the change of an agent or project. A new one that is not saved has no id."""
    return library_service_pb2.ResourceChange(
        action=enum_number(_CHANGE, change.action),  # type: ignore[arg-type]
        type=enum_number(_RESOURCE, change.type),  # type: ignore[arg-type]
        name=change.name,
        id=change.id if is_saved or change.action != "created" else "",
        diff=change.diff,
    )


def kinds_from_proto(kinds: Sequence[int]) -> tuple[Kind, ...]:
    """Decode the kinds of a filter. Raises FIELD_INVALID for "unspecified"."""
    if 0 in kinds:
        raise error(
            Reason.FIELD_INVALID,
            "kinds contains UNSPECIFIED. Name the kinds to list, or leave kinds empty for all.",
            field="kinds",
        )
    return tuple(Kind(enum_name(_KIND, kind)) for kind in kinds)


# --- libraries ------------------------------------------------------------------------------------------


def library_to_proto(library: Library) -> library_pb2.Library:
    message = library_pb2.Library(
        id=library.id,
        name=library.name,
        description=library.description,
        definition_count=library.definition_count,
        etag=etag(library),
    )
    _stamp(message, library)
    return message


# --- agents ---------------------------------------------------------------------------------------------


def agent_to_proto(
    agent: Agent, account: Account | None = None, failing_hooks: Sequence[HookFailure] = ()
) -> library_pb2.Agent:
    """Encode an agent. ``account`` is its usage, or None if that is unknown."""
    message = library_pb2.Agent(
        id=agent.id,
        name=agent.name,
        project_ids=agent.project_ids,
        description=agent.description,
        etag=etag(agent),
        budget=budget_to_proto(agent.budget),
        usage=usage_to_proto(account) if account is not None else None,
        failing_hooks=map(_hook_failure_to_proto, failing_hooks),
    )
    if agent.persona is None:
        message.persona_id = agent.persona_id
    else:
        message.persona.SetInParent()
        fill_from_document(message.persona, to_json(agent.persona))
    if agent.metadata:
        message.metadata.CopyFrom(dict_to_struct(agent.metadata))
    _stamp(message, agent)
    return message


def _hook_failure_to_proto(failure: HookFailure) -> library_pb2.HookFailure:
    return library_pb2.HookFailure(
        hook=enum_value(library_pb2.Hook, "HOOK", failure.hook.value),
        count=failure.count,
        first_time=to_timestamp(failure.first_ms),
        last_time=to_timestamp(failure.last_ms),
        workflow=failure.workflow,
        conversation_id=failure.conversation_id,
        turn_id=failure.turn_id,
        run_id=failure.run_id,
        error=fault_to_proto(failure.fault),
    )


def agent_from_proto(message: library_pb2.Agent) -> Agent:
    """Decode the agent of a CreateAgent. Raises DEFINITION_INVALID or FIELD_INVALID."""
    return _edited(Agent(id="", name="", project_ids=()), message, AGENT_PATHS)


def agent_edit(message: library_pb2.Agent, mask: FieldMask) -> Callable[[Agent], Agent]:
    """Return the function that applies an UpdateAgent to the stored agent.

    Raises FIELD_MASK_UNSUPPORTED, DEFINITION_INVALID or FIELD_INVALID.
    """
    paths = _masked_paths(message, mask, AGENT_PATHS)
    _edited(
        Agent(id="", name="", project_ids=()), message, paths
    )  # Reject an invalid request before the agent is read.
    return lambda stored: _edited(stored, message, paths)


def _edited(agent: Agent, message: library_pb2.Agent, paths: Collection[str]) -> Agent:
    if "budget" in paths:
        agent = replace(agent, budget=budget_from_proto(message.budget, "agent.budget"))
    if "name" in paths:
        agent = replace(agent, name=message.name)
    if "project_ids" in paths:
        agent = replace(agent, project_ids=tuple(message.project_ids))
    if "description" in paths:
        agent = replace(agent, description=message.description)
    if "metadata" in paths:
        agent = replace(agent, metadata=struct_to_dict(message.metadata, "agent.metadata"))
    if "persona" in paths and message.WhichOneof("identity") == "persona":
        persona = parse_spec(
            Kind.PERSONA, to_document(message.persona, "agent.persona"), path="agent.persona"
        )
        assert isinstance(persona, Persona)
        return replace(agent, persona=persona, persona_id="")
    if "persona_id" in paths or "persona" in paths:
        return replace(agent, persona=None, persona_id=message.persona_id)
    return agent


# --- projects -------------------------------------------------------------------------------------------


def project_to_proto(project: Project, account: Account | None = None) -> library_pb2.Project:
    """Encode a project. ``account`` is its usage, or None if that is unknown."""
    message = library_pb2.Project(
        id=project.id,
        name=project.name,
        description=project.description,
        repositories=[
            library_pb2.Repository(
                name=each.name, url=hide_passwords(each.url), default_branch=each.default_branch
            )
            for each in project.repositories
        ],
        etag=etag(project),
        usage=usage_to_proto(account) if account is not None else None,
    )
    if project.network is not None:
        message.network.SetInParent()
        fill_from_document(message.network, to_json(project.network))
    if project.metadata:
        message.metadata.CopyFrom(dict_to_struct(project.metadata))
    _stamp(message, project)
    return message


def project_from_proto(message: library_pb2.Project) -> Project:
    """Decode the project of a CreateProject. Raises FIELD_INVALID."""
    return _changed(Project(id="", name=message.name), message, PROJECT_PATHS)


def project_edit(message: library_pb2.Project, mask: FieldMask) -> Callable[[Project], Project]:
    """Return the function that applies an UpdateProject to the stored project.

    Raises FIELD_MASK_UNSUPPORTED or FIELD_INVALID.
    """
    paths = _masked_paths(message, mask, PROJECT_PATHS)
    return lambda stored: _changed(stored, message, paths)


def _changed(project: Project, message: library_pb2.Project, paths: Collection[str]) -> Project:
    if "description" in paths:
        project = replace(project, description=message.description)
    if "repositories" in paths:
        # Older versions stored URLs with passwords, and clients return the URLs without them.
        shown = {(each.name, hide_passwords(each.url)): each.url for each in project.repositories}
        repositories = [
            Repository(
                name=each.name,
                url=shown.get((each.name, each.url), each.url),
                default_branch=each.default_branch,
            )
            for each in message.repositories
        ]
        project = replace(project, repositories=tuple(repositories))
    if "network" in paths:
        network = read_record(NetworkPolicy, to_document(message.network))
        project = replace(project, network=network if message.HasField("network") else None)
    if "metadata" in paths:
        project = replace(project, metadata=struct_to_dict(message.metadata, "project.metadata"))
    return project


# --- shared ---------------------------------------------------------------------------------------------


def _masked_paths(message: Message, mask: FieldMask, known: Sequence[str]) -> frozenset[str]:
    """Return the fields that the mask names, or those that are set if the mask is empty."""
    for path in mask.paths:
        if path not in known:
            raise error(
                Reason.FIELD_MASK_UNSUPPORTED,
                f"update_mask: '{path[:100]}' cannot be changed. Use one of {', '.join(known)}.",
                field="update_mask",
            )
    if mask.paths:
        return frozenset(mask.paths)
    return frozenset(field.name for field, _ in message.ListFields()) & frozenset(known)


def _stamp(
    message: definition_pb2.Definition | library_pb2.Library | library_pb2.Agent | library_pb2.Project,
    resource: Definition | Library | Agent | Project,
) -> None:
    if created := to_timestamp(resource.created_ms):
        message.create_time.CopyFrom(created)
    if updated := to_timestamp(resource.updated_ms):
        message.update_time.CopyFrom(updated)
    set_principal(message.updated_by, resource.updated_by)
