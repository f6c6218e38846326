"""Whole definitions as documents: what a YAML file, the contract and the catalog have in common.

::

    name: remember
    description: Keep a fact for later conversations.
    labels: {team: core}
    tool:                      # exactly one of persona, tool, workflow, task, action, model_profile
      target_type: task
      target_id: write_memory

``kind`` may stand beside it and must agree. What the server sets (``id``, ``revision``, times …) may
stand there too, as in an exported answer, and is not read. A tool without a ``name`` or
``description`` of its own has the definition's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
    """A definition as its author wrote it. ``library`` is empty where the caller says it."""

    name: str
    spec: Spec
    library: str = ""
    description: str = ""
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> Kind:
        return kind_of(self.spec)

    def to_document(self) -> dict[str, Any]:
        """See `draft_to_json`."""
        return draft_to_json(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> DefinitionDraft:
        """See `parse_draft`."""
        return parse_draft(document)

    def content_hash(self) -> str:
        """SHA-256 (hex) of all but the library: equal content, equal hash, however it was spelled."""
        document = {**draft_to_json(self), "kind": self.kind}
        document.pop("library", None)
        return hashlib.sha256(canonical(document).encode()).hexdigest()


def parse_draft(document: Mapping[str, Any]) -> DefinitionDraft:
    """The draft that ``document`` spells. Raises DEFINITION_INVALID with every fault found."""
    draft, faults = parse_draft_lenient(document)
    if draft is None or faults:
        raise WonderError(faults[0], faults=faults)
    return draft


def parse_draft_lenient(document: Mapping[str, Any]) -> tuple[DefinitionDraft | None, tuple[Fault, ...]]:
    """As `parse_draft`, but never raises: beside the faults what could be read in spite of them, so that the
    rest can be judged too; None if it does not say what it defines."""
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


def draft_to_json(draft: DefinitionDraft) -> dict[str, Any]:
    """The document of a draft: what was left at its default is left out."""
    spec = to_json(draft.spec)
    if draft.kind is Kind.TOOL:
        for name, inherited in (("name", draft.name), ("description", draft.description)):
            if spec[name] == inherited:
                del spec[name]
    header = {"library": draft.library, "name": draft.name, "description": draft.description}
    document: dict[str, Any] = {name: value for name, value in header.items() if value}
    if draft.labels:
        document["labels"] = dict(draft.labels)
    return {**document, str(draft.kind): spec}


def _kind(document: Mapping[str, Any], faults: FaultList) -> Kind | None:
    """The one kind whose spec the document holds."""
    present = [kind for kind in Kind if kind in document]
    if len(present) != 1:
        faults.refuse("spec", f"A definition says exactly one of: {', '.join(Kind)}.")
        return None
    said = document.get("kind")
    if said is not None and said != present[0]:
        faults.refuse("kind", f"The kind is '{said}', but what is defined is a {present[0]}.")
    return present[0]


def _with_defaults(kind: Kind, spec: Any, name: str, description: str) -> Any:
    if kind is not Kind.TOOL or not isinstance(spec, Mapping):
        return spec
    filled = dict(spec)
    filled["name"] = filled.get("name") or name
    filled["description"] = filled.get("description") or description
    return filled


def _text(document: Mapping[str, Any], name: str, faults: FaultList) -> str:
    value = document.get(name, "")
    if isinstance(value, str):
        return value
    faults.refuse(name, f"{name} must be text.")
    return ""


def _labels(document: Mapping[str, Any], faults: FaultList) -> dict[str, str]:
    labels = document.get("labels", {})
    if not isinstance(labels, Mapping):
        faults.refuse("labels", "labels must be an object of texts.")
        return {}
    if len(labels) > MAX_LABELS:
        faults.refuse("labels", f"There are {len(labels)} labels; at most {MAX_LABELS} are taken.")
    for key, value in labels.items():
        if not isinstance(key, str) or not isinstance(value, str):
            faults.refuse(f"labels.{key}", "A label's key and value must be text; put them in quotes.")
        elif not key or max(len(key), len(value)) > MAX_LABEL_CHARACTERS:
            faults.refuse(f"labels.{key}", f"A label is 1 to {MAX_LABEL_CHARACTERS} characters long.")
    return dict(sorted(labels.items(), key=lambda label: str(label[0])))
