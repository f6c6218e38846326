"""An index of definitions in memory, by reference."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from wonder_server.core.definitions.reference_check import ResolvedReference
from wonder_server.core.definitions.references import Reference, mentions, parse_reference
from wonder_server.core.definitions.resources import Definition
from wonder_server.core.definitions.specs import Kind, Spec
from wonder_server.core.json_types import JsonObject


class DefinitionIndex:
    """Definitions in memory by reference. An entry never replaces an earlier one.

    A batch that is being saved is added first, so it hides the catalog's definitions of the same names.
    """

    def __init__(self, definitions: Iterable[Definition] = ()) -> None:
        self._by_reference: dict[Reference, Definition | None] = {}
        for definition in definitions:
            self._put(Reference(definition_id=definition.id), definition)
            self._put(Reference(library=definition.library, name=definition.name), definition)

    def find(self, text: str, library: str) -> Definition | None:
        """Return the definition that ``text`` refers to in a definition of ``library``, if the index has
        it."""
        reference = parse_reference(text)
        return None if reference is None else self._by_reference.get(reference.within(library))

    def put(self, reference: Reference, definition: Definition | None) -> None:
        """Add the target of a reference; None for a reference without a target."""
        self._by_reference.setdefault(reference, definition)

    def unknown(self, spec: Spec, library: str) -> Iterator[Reference]:
        """Yield the references of ``spec`` that the index does not have."""
        for mention in mentions(spec):
            reference = parse_reference(mention.text)
            if reference is not None and reference.within(library) not in self._by_reference:
                yield reference.within(library)

    def names(self, kind: Kind, library: str) -> set[str]:
        """Return the references by which a definition of ``library`` names the indexed definitions of a
        kind."""
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
    """A `DefinitionIndex` with the server's action kinds and providers, as the resolver of `check_spec`."""

    index: DefinitionIndex
    actions: Mapping[str, JsonObject]
    providers: Collection[str] = ()

    def find(self, reference: str, library: str) -> ResolvedReference | None:
        """Follow a reference in a definition of ``library``."""
        definition = self.index.find(reference, library)
        if definition is None:
            return None
        return ResolvedReference(
            key=str(definition.pin), library=definition.library, kind=definition.kind, spec=definition.spec
        )

    def names(self, kind: Kind, library: str) -> set[str]:
        """Return the references to the indexed definitions of a kind."""
        return self.index.names(kind, library)


def leads_to(text: str, library: str, definition: Definition) -> bool:
    """Return True if ``text`` in a definition of ``library`` refers to any revision of ``definition``."""
    reference = parse_reference(text)
    if reference is None:
        return False
    absolute = reference.within(library)
    if absolute.definition_id:
        return absolute.definition_id == definition.id
    return (absolute.library, absolute.name) == (definition.library, definition.name)
