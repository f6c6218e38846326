"""Definitions at hand, found as references find them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from wonder_server.core.definitions.reference_check import ResolvedReference
from wonder_server.core.definitions.references import Reference, mentions, parse_reference
from wonder_server.core.definitions.resources import Definition
from wonder_server.core.definitions.specs import Kind, Spec


class DefinitionIndex:
    """Definitions in memory. What is put in first stands before what comes later: a batch that is being
    saved stands before what the catalog holds under the same names."""

    def __init__(self, definitions: Iterable[Definition] = ()) -> None:
        self._by_reference: dict[Reference, Definition | None] = {}
        for definition in definitions:
            self._put(Reference(definition_id=definition.id), definition)
            self._put(Reference(library=definition.library, name=definition.name), definition)

    def find(self, text: str, library: str) -> Definition | None:
        """Where the reference ``text`` in a definition of ``library`` leads, as far as it is at hand."""
        reference = parse_reference(text)
        return None if reference is None else self._by_reference.get(reference.within(library))

    def put(self, reference: Reference, definition: Definition | None) -> None:
        """Note where a reference leads; None: nowhere."""
        self._by_reference.setdefault(reference, definition)

    def unknown(self, spec: Spec, library: str) -> Iterator[Reference]:
        """The references of ``spec`` of which it is not known yet where they lead."""
        for mention in mentions(spec):
            reference = parse_reference(mention.text)
            if reference is not None and reference.within(library) not in self._by_reference:
                yield reference.within(library)

    def names(self, kind: Kind, library: str) -> set[str]:
        """How a definition of ``library`` would refer to those of ``kind`` that are at hand."""
        return {
            each.name if each.library == library else f"{each.library}/{each.name}"
            for each in self._by_reference.values()
            if each is not None and each.kind is kind
        }

    def _put(self, reference: Reference, definition: Definition) -> None:
        self.put(reference, definition)
        pinned = Reference(
            definition_id=reference.definition_id,
            library=reference.library,
            name=reference.name,
            revision=definition.revision,
        )
        self.put(pinned, definition)


@dataclass(frozen=True, slots=True)
class IndexResolver:
    """A `Shelf` and the server's action kinds and providers, as `check.check_spec` asks for them."""

    index: DefinitionIndex
    actions: Mapping[str, Mapping[str, Any]]
    providers: Collection[str] = ()

    def find(self, reference: str, library: str) -> ResolvedReference | None:
        definition = self.index.find(reference, library)
        if definition is None:
            return None
        return ResolvedReference(
            key=str(definition.pin), library=definition.library, kind=definition.kind, spec=definition.spec
        )

    def names(self, kind: Kind, library: str) -> set[str]:
        return self.index.names(kind, library)


def leads_to(text: str, library: str, definition: Definition) -> bool:
    """Whether the reference ``text`` in ``library`` is one to ``definition``, whatever revision it says."""
    reference = parse_reference(text)
    if reference is None:
        return False
    here = reference.within(library)
    if here.definition_id:
        return here.definition_id == definition.id
    return (here.library, here.name) == (definition.library, definition.name)
