"""What a definition stands among, and whether what it names is there (feature A6)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from wonder_server.core.definitions.fault_list import FaultList
from wonder_server.core.definitions.graph import find_cycle
from wonder_server.core.definitions.references import mentions, parse_reference
from wonder_server.core.definitions.specs import Kind, Spec
from wonder_server.core.suggestions import did_you_mean

MAX_EXPANDED_WORKFLOWS = 1_000
"""A pin is a tree: a workflow that is reached in two ways stands in it twice."""

MAX_DEPTH = 32
"""How deep workflows may stand in each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedReference:
    """What a reference leads to: ``key`` names the definition and its revision, ``library`` is where
    the references inside it start from."""

    key: str
    library: str
    kind: Kind
    spec: Spec


class ReferenceResolver(Protocol):
    """All that a definition is checked against.

    ``actions``: the action kinds of this server, each with the JSON Schema of its input.
    ``providers``: the providers of models that this server has; empty: any.
    ``find`` follows a reference as written in a definition of ``library``; None if it leads nowhere.
    ``names`` are references that lead to definitions of a kind, those at hand: for "did you mean".
    """

    @property
    def actions(self) -> Mapping[str, Mapping[str, Any]]: ...

    @property
    def providers(self) -> Collection[str]: ...

    def find(self, reference: str, library: str) -> ResolvedReference | None: ...

    def names(self, kind: Kind, library: str) -> Collection[str]: ...


def check_references(spec: Spec, library: str, resolver: ReferenceResolver, faults: FaultList) -> None:
    """Refuse names that lead nowhere or to the wrong kind, and workflows that contain themselves."""
    for mention in mentions(spec):
        if parse_reference(mention.text) is None:
            faults.refuse(
                mention.path,
                f"'{mention.text}' is no reference: write name, library/name or def_…, @revision optional.",
            )
            continue
        found = resolver.find(mention.text, library)
        if found is None:
            meant = did_you_mean(mention.text, resolver.names(mention.kind, library))
            faults.refuse(mention.path, f"There is no {_words(mention.kind)} '{mention.text}'{meant}.")
        elif found.kind is not mention.kind:
            faults.refuse(
                mention.path, f"'{mention.text}' is a {_words(found.kind)}, not a {_words(mention.kind)}."
            )
        elif found.kind is Kind.WORKFLOW:
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
                    f"'{mention.text}' contains more than {MAX_EXPANDED_WORKFLOWS} workflows, all told.",
                )


def _inside(workflow: ResolvedReference, resolver: ReferenceResolver) -> dict[str, list[str]]:
    """Which workflows contain which, from this one on."""
    edges: dict[str, list[str]] = {}
    waiting = [workflow]
    while waiting:
        outer = waiting.pop()
        if outer.key in edges:
            continue
        inner = [
            found
            for mention in mentions(outer.spec)
            if mention.kind is Kind.WORKFLOW and (found := resolver.find(mention.text, outer.library))
        ]
        edges[outer.key] = [found.key for found in inner]
        waiting.extend(inner)
    return edges


def _depth(start: str, edges: Mapping[str, list[str]]) -> int:
    """The longest way down from a workflow. Without recursion, which long chains would exhaust."""
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
    """How many workflows a pin of this one holds: each counts as often as it is reached."""
    if key not in known:
        known[key] = 1
        known[key] += sum(_expanded_size(inner, edges, known) for inner in edges[key])
    return known[key]


def _words(kind: Kind) -> str:
    return kind.replace("_", " ")
