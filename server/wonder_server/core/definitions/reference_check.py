"""Validation of references: each leads to a definition of the right kind, and no workflow contains itself
(feature A6)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from wonder_server.core.definitions.fault_list import FaultList
from wonder_server.core.definitions.graph import find_cycle
from wonder_server.core.definitions.references import Mention, mentions, parse_reference
from wonder_server.core.definitions.specs import Kind, ModelProfile, Spec
from wonder_server.core.json_types import JsonObject
from wonder_server.core.suggestions import closest, did_you_mean, suggestion

MAX_EXPANDED_WORKFLOWS = 1_000
"""Limit of workflows in one pin. A pin is a tree: it contains a workflow once for each path to it."""

MAX_DEPTH = 32
"""Limit of nested workflows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedReference:
    """The target of a reference. ``key`` names the definition and its revision. ``library`` is the library
    from which references inside it start."""

    key: str
    library: str
    kind: Kind
    spec: Spec


class ReferenceResolver(Protocol):
    """Source of everything that a definition is checked against.

    ``actions``: the action kinds of this server, each with the JSON Schema of its input. ``providers``: the
    model providers of this server; empty allows every provider. ``find`` follows a reference in a definition
    of ``library``; None if it has no target. ``names`` returns references to the known definitions of a kind,
    for "did you mean".
    """

    @property
    def actions(self) -> Mapping[str, JsonObject]: ...

    @property
    def providers(self) -> Collection[str]: ...

    def find(self, reference: str, library: str) -> ResolvedReference | None: ...

    def names(self, kind: Kind, library: str) -> Collection[str]: ...


def check_references(spec: Spec, library: str, resolver: ReferenceResolver, faults: FaultList) -> None:
    """Refuse references without a target or to the wrong kind, and workflows that contain themselves."""
    for mention in mentions(spec):
        if parse_reference(mention.text) is None:
            faults.refuse(
                mention.path,
                f"'{mention.text}' is not a reference. "
                "Write name, library/name or def_…, with an optional @revision.",
            )
            continue
        found = resolver.find(mention.text, library)
        if found is None:
            meant = _meant(mention.text, resolver.names(mention.kind, library))
            place = f" in {library}" if library and "/" not in mention.text else ""
            faults.refuse(mention.path, f"There is no {_words(mention.kind)} '{mention.text}'{place}{meant}.")
        elif found.kind is not mention.kind:
            faults.refuse(
                mention.path, f"'{mention.text}' is a {_words(found.kind)}, not a {_words(mention.kind)}."
            )
        elif found.kind is Kind.MODEL_PROFILE and isinstance(spec, ModelProfile):
            if find_cycle(_inside(found, resolver)):
                faults.refuse(mention.path, f"The fallback '{mention.text}' leads back to itself.")
        elif found.kind is Kind.WORKFLOW:
            _check_nesting(mention, found, resolver, faults)


def _meant(text: str, names: Collection[str]) -> str:
    """Return the suggestion for a reference without a target. A name alone may be one of another library."""
    if (meant := did_you_mean(text, names)) or "/" in text:
        return meant
    full = {each.rpartition("/")[2]: each for each in sorted(names, reverse=True)}
    return suggestion(full.get(closest(text, full), ""))


def _check_nesting(
    mention: Mention, found: ResolvedReference, resolver: ReferenceResolver, faults: FaultList
) -> None:
    """Refuse a workflow that contains itself, or too many others."""
    edges = _inside(found, resolver)
    if find_cycle(edges):
        faults.refuse(mention.path, f"'{mention.text}' contains itself: it would never end.")
    elif _depth(found.key, edges) > MAX_DEPTH:
        faults.refuse(
            mention.path,
            f"'{mention.text}' contains workflows within workflows more than {MAX_DEPTH} deep.",
        )
    elif _expanded_size(found.key, edges, {}) > MAX_EXPANDED_WORKFLOWS:
        faults.refuse(
            mention.path,
            f"'{mention.text}' contains more than {MAX_EXPANDED_WORKFLOWS} workflows in total.",
        )


def _inside(start: ResolvedReference, resolver: ReferenceResolver) -> dict[str, list[str]]:
    """Return the definitions of the same kind to which each one refers, from ``start`` on: workflows within
    workflows, fallbacks of model profiles.
    """
    edges: dict[str, list[str]] = {}
    waiting = [start]
    while waiting:
        outer = waiting.pop()
        if outer.key in edges:
            continue
        inner = [
            found
            for mention in mentions(outer.spec)
            if mention.kind is start.kind and (found := resolver.find(mention.text, outer.library))
        ]
        edges[outer.key] = [found.key for found in inner]
        waiting.extend(inner)
    return edges


def _depth(start: str, edges: Mapping[str, list[str]]) -> int:
    """Return the length of the longest path from a workflow. Iterative: long chains would exceed the
    recursion limit."""
    depths: dict[str, int] = {}
    waiting = [start]
    while waiting:
        key = waiting[-1]
        unknown = [inner for inner in edges[key] if inner not in depths]
        if unknown:
            waiting.extend(unknown)
            continue
        waiting.pop()
        depths[key] = 1 + max((depths[inner] for inner in edges[key]), default=0)
    return depths[start]


def _expanded_size(key: str, edges: Mapping[str, list[str]], known: dict[str, int]) -> int:
    """Return the number of workflows in a pin of this one, each counted once for each path."""
    if key not in known:
        known[key] = 1
        known[key] += sum(_expanded_size(inner, edges, known) for inner in edges[key])
    return known[key]


def _words(kind: Kind) -> str:
    return kind.replace("_", " ")
