"""Definitions as documents: the common form of YAML files, the contract and the catalog.

::

    name: remember
    description: Keep a fact for later conversations.
    labels: {team: core}
    tool:                      # exactly one of persona, tool, workflow, task, action, model_profile
      target_type: task
      target_id: write_memory

A document may contain ``kind``, which must match. It may also contain fields that the server sets (``id``,
``revision``, times …), as in an exported answer; they are ignored. A tool without ``name`` or ``description``
gets those of the definition.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from wonder_server.core.definitions.fault_list import FaultList
from wonder_server.core.definitions.parse import canonical, kind_of, parse_spec_lenient, to_json
from wonder_server.core.definitions.references import (
    LIBRARY_RULE,
    NAME_RULE,
    is_definition_name,
    is_library_name,
)
from wonder_server.core.definitions.specs import Kind, Spec
from wonder_server.core.errors import Fault, WonderError
from wonder_server.core.json_types import JsonDict, JsonObject, JsonValue
from wonder_server.core.suggestions import did_you_mean

MAX_DESCRIPTION_BYTES = 4_096
MAX_LABELS = 64
MAX_LABEL_CHARACTERS = 256

SET_BY_SERVER = frozenset(
    {"id", "library_id", "revision", "content_hash", "create_time", "update_time", "etag"}
)
_HEADER = frozenset({"kind", "library", "name", "description", "labels"})
_KINDS = frozenset(Kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionDraft:
    """A definition as its author wrote it. ``library`` is empty if the caller provides it."""

    name: str
    spec: Spec
    library: str = ""
    description: str = ""
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> Kind:
        """The kind that the spec defines."""
        return kind_of(self.spec)

    def to_document(self) -> JsonDict:
        """Return the document of the draft; see `draft_to_json`."""
        return draft_to_json(self)

    @classmethod
    def from_document(cls, document: JsonObject) -> DefinitionDraft:
        """Read a draft; see `parse_draft`."""
        return parse_draft(document)

    def content_hash(self) -> str:
        """Return the SHA-256 (hex) of everything but the library. It does not depend on the spelling of the
        document."""
        document = {**draft_to_json(self), "kind": self.kind}
        document.pop("library", None)
        return hashlib.sha256(canonical(document).encode()).hexdigest()


def parse_draft(document: JsonObject) -> DefinitionDraft:
    """Return the draft of ``document``. Raises DEFINITION_INVALID with every fault."""
    draft, faults = parse_draft_lenient(document)
    if draft is None or faults:
        raise WonderError(faults[0], faults=faults)
    return draft


def parse_draft_lenient(document: JsonObject) -> tuple[DefinitionDraft | None, tuple[Fault, ...]]:
    """Return the readable part of ``document`` and its faults. The draft is None if the kind is unknown.

    Never raises. The caller can check the readable part and report further faults.
    """
    faults = FaultList()
    kind = _kind(document, faults)
    known = _HEADER | _KINDS
    for key in sorted(set(map(str, document)) - known - SET_BY_SERVER):
        faults.refuse(key, f"'{key}' is not a field of a definition{did_you_mean(key, known)}.")
    name = _text(document, "name", faults)
    if not is_definition_name(name):
        faults.refuse("name", f"A definition's name is {NAME_RULE}.")
    library = _text(document, "library", faults)
    if library and not is_library_name(library):
        faults.refuse("library", f"A library's name is {LIBRARY_RULE}.")
    description = _text(document, "description", faults)
    if len(description.encode()) > MAX_DESCRIPTION_BYTES:
        faults.refuse("description", f"The description is longer than {MAX_DESCRIPTION_BYTES} bytes.")
    labels = _labels(document, faults)
    if kind is None:
        return None, faults.found()
    spec, wrong = parse_spec_lenient(
        kind, _with_defaults(kind, document[kind], name, description), path=str(kind)
    )
    for fault in wrong:
        faults.refuse(fault.field, fault.message)
    draft = DefinitionDraft(name=name, library=library, description=description, labels=labels, spec=spec)
    return draft, faults.found()


def draft_to_json(draft: DefinitionDraft) -> JsonDict:
    """Return the document of a draft, without fields that have their default."""
    spec = to_json(draft.spec)
    if draft.kind is Kind.TOOL:
        for name, inherited in (("name", draft.name), ("description", draft.description)):
            if spec[name] == inherited:
                del spec[name]
    header = {"library": draft.library, "name": draft.name, "description": draft.description}
    document: JsonDict = {name: value for name, value in header.items() if value}
    if draft.labels:
        document["labels"] = dict(draft.labels)
    return {**document, str(draft.kind): spec}


def _kind(document: JsonObject, faults: FaultList) -> Kind | None:
    """Return the one kind whose spec the document contains."""
    present = [kind for kind in Kind if kind in document]
    if len(present) != 1:
        faults.refuse("spec", f"A definition has exactly one of: {', '.join(Kind)}.")
        return None
    declared = document.get("kind")
    if declared is not None and declared != present[0]:
        faults.refuse("kind", f"The kind is '{declared}', but the document defines a {present[0]}.")
    return present[0]


def _with_defaults(kind: Kind, spec: JsonValue, name: str, description: str) -> JsonValue:
    if kind is not Kind.TOOL or not isinstance(spec, Mapping):
        return spec
    filled = dict(spec)
    filled["name"] = filled.get("name") or name
    filled["description"] = filled.get("description") or description
    return filled


def _text(document: JsonObject, name: str, faults: FaultList) -> str:
    value = document.get(name, "")
    if isinstance(value, str):
        return value
    faults.refuse(name, f"{name} must be text.")
    return ""


def _labels(document: JsonObject, faults: FaultList) -> dict[str, str]:
    labels = document.get("labels", {})
    if not isinstance(labels, Mapping):
        faults.refuse("labels", "labels must be an object of texts.")
        return {}
    if len(labels) > MAX_LABELS:
        faults.refuse("labels", f"There are {len(labels)} labels; at most {MAX_LABELS} are allowed.")
    for key, value in labels.items():
        if not isinstance(key, str) or not isinstance(value, str):
            faults.refuse(f"labels.{key}", "A label's key and value must be text; put them in quotes.")
        elif not key or max(len(key), len(value)) > MAX_LABEL_CHARACTERS:
            faults.refuse(f"labels.{key}", f"A label is 1 to {MAX_LABEL_CHARACTERS} characters long.")
    return dict(sorted(labels.items(), key=lambda label: str(label[0])))
