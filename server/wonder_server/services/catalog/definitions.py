"""Libraries and definitions: create, save, apply, list, delete (features A1, A6, A7)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from wonder_server.core.definitions.check import check_spec
from wonder_server.core.definitions.diff import diff
from wonder_server.core.definitions.document import MAX_DESCRIPTION_BYTES, DefinitionDraft
from wonder_server.core.definitions.fault_list import under
from wonder_server.core.definitions.index import DefinitionIndex, IndexResolver
from wonder_server.core.definitions.references import (
    LIBRARY_RULE,
    Reference,
    is_library_name,
    parse_reference,
)
from wonder_server.core.definitions.resources import STANDARD_LIBRARY, Definition, Library
from wonder_server.core.definitions.specs import Kind
from wonder_server.core.errors import Fault, Reason, WonderError, error, not_found
from wonder_server.core.idempotency import SERVER_ORIGIN, Origin
from wonder_server.core.ids import random_id
from wonder_server.core.json_types import JsonObject, JsonValue
from wonder_server.ports.catalog import Change, DefinitionQuery, Drop, Put
from wonder_server.ports.scoped import ScopedCatalog
from wonder_server.services.catalog.applied import ResourceChange
from wonder_server.services.catalog.dependencies import (
    NO_LIMIT,
    latest_revisions,
    load_dependencies,
    refuse_if_used,
)
from wonder_server.services.catalog.not_found import definition_not_found
from wonder_server.services.catalog.transactions import (
    CatalogTransactions,
    EmptyResult,
    PlannedChange,
    Stamp,
    check_etag,
)
from wonder_server.services.paging import Page, PageRequest, page

MAX_APPLY: Final = 1_000


class ChangeAction(StrEnum):
    """The effect of a save or prune on a definition."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionChange:
    """The effect of a save or prune on one definition. A revision of 0 means that there was, or is, none."""

    action: ChangeAction
    kind: Kind
    name: str
    old_revision: int = 0
    new_revision: int = 0
    diff: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A saved definition and the change to it."""

    definition: Definition
    change: DefinitionChange


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The result of a batch: the change of each definition in the order of the batch, then the pruned
    ones."""

    changes: tuple[DefinitionChange, ...]
    library: Library
    resources: tuple[ResourceChange, ...] = ()


PlanResources = Callable[
    [Sequence[Definition], Sequence[Definition], Stamp], Awaitable[tuple[list[Change], list[ResourceChange]]]
]
"""Plans the agents and projects of a batch, from its saved and removed definitions."""


YIELD_EVERY = 20
"""Number of definitions to check before yielding to other work, so that a large folder does not block the
server."""


class Definitions:
    """The use cases of libraries and definitions. The key of a library is its id or name."""

    def __init__(
        self,
        catalog: ScopedCatalog,
        transactions: CatalogTransactions,
        actions: Mapping[str, JsonObject],
        providers: Collection[str] = (),
    ) -> None:
        """``actions``: the JSON Schema of the input of each action kind of this server. ``providers``: the
        names of its model providers; empty accepts any."""
        self._providers = frozenset(providers)
        self._catalog = catalog
        self._transactions = transactions
        self._actions = actions

    # --- libraries ------------------------------------------------------------------------------

    async def create_library(
        self,
        name: str,
        description: str = "",
        *,
        origin: Origin = SERVER_ORIGIN,
        validate_only: bool = False,
    ) -> Library:
        """Create an empty library. Raises FIELD_INVALID, ALREADY_EXISTS."""
        _check_library(name, description)

        async def plan(stamp: Stamp) -> PlannedChange[Library]:
            if await self._catalog.library(name) is not None:
                raise error(
                    Reason.ALREADY_EXISTS,
                    f"A library '{name}' already exists. Choose another name.",
                    field="library.name",
                )
            library = _new_library(name, description, stamp)
            return PlannedChange(library, [Put(library)])

        return await self._transactions.execute(Library, plan, origin=origin, validate_only=validate_only)

    async def library(self, key: str, *, field: str = "library_id") -> Library:
        """Return a library. Raises LIBRARY_NOT_FOUND."""
        found = await self._catalog.library(key) if key else None
        if found is None:
            raise not_found(Reason.LIBRARY_NOT_FOUND, key, field=field)
        return found

    async def libraries(self, request: PageRequest) -> Page[Library]:
        """Return all libraries, by name."""
        after, limit = request.cursor(["libraries"], ""), request.limit()
        found = await self._catalog.libraries(after, limit + 1)
        return page(found, limit, ["libraries"], lambda library: library.name)

    async def delete_library(
        self, key: str, *, force: bool = False, etag: str = "", origin: Origin = SERVER_ORIGIN
    ) -> None:
        """Delete a library. Raises LIBRARY_NOT_FOUND, ETAG_MISMATCH, and RESOURCE_IN_USE if it is the
        standard library, if it has definitions and ``force`` is not set, or if other definitions refer to one
        of them."""

        async def plan(stamp: Stamp) -> PlannedChange[EmptyResult]:
            library = await self.library(key)
            check_etag(library, etag)
            _refuse_standard(library.name, "it")
            contents = await self._catalog.definitions(DefinitionQuery(library_id=library.id, limit=NO_LIMIT))
            if contents and not force:
                raise error(
                    Reason.RESOURCE_IN_USE,
                    f"Library '{library.name}' has {len(contents)} definitions. Delete them or set force.",
                )
            await refuse_if_used(self._transactions.whole, contents, ())
            return PlannedChange(EmptyResult(), [*map(Drop, contents), Drop(library)])

        await self._transactions.execute(EmptyResult, plan, origin=origin)

    # --- definitions ----------------------------------------------------------------------------

    async def definition(self, text: str, *, field: str = "definition_id") -> Definition:
        """Return the revision of a reference: ``def_…`` or ``library/name``, with or without ``@revision``.

        Raises FIELD_INVALID for an invalid reference, DEFINITION_NOT_FOUND."""
        reference = _reference(text, field)
        found = await self._catalog.definition(reference)
        if found is None:
            raise await definition_not_found(self._catalog, text, reference, field=field)
        return found

    async def definitions(
        self,
        request: PageRequest,
        *,
        library: str = "",
        kinds: Sequence[Kind] = (),
        labels: Mapping[str, str] | None = None,
    ) -> Page[Definition]:
        """Return the latest revisions, by library and name. Raises LIBRARY_NOT_FOUND."""
        library_id = (await self.library(library)).id if library else ""
        scope = ["definitions", library_id, sorted(kinds), dict(labels or {})]
        after, limit = request.cursor(scope, ["", ""]), request.limit()
        query = DefinitionQuery(
            library_id=library_id,
            kinds=tuple(kinds),
            labels=dict(labels or {}),
            after=_pair(after),
            limit=limit + 1,
        )
        found = await self._catalog.definitions(query)
        return page(found, limit, scope, lambda definition: [definition.library, definition.name])

    async def revisions(self, text: str, request: PageRequest) -> Page[Definition]:
        """Return all revisions of a definition, newest first. Raises DEFINITION_NOT_FOUND."""
        head = await self.definition(text.partition("@")[0])
        scope = ["revisions", head.id]
        before, limit = request.cursor(scope, 0), request.limit()
        found = await self._catalog.revisions(head.id, before, limit + 1)
        return page(found, limit, scope, lambda definition: definition.revision)

    async def put(
        self,
        library: str,
        draft: DefinitionDraft,
        *,
        etag: str = "",
        origin: Origin = SERVER_ORIGIN,
        validate_only: bool = False,
    ) -> Saved:
        """Save one definition: a new one, a new revision, or no change if the content is the same.

        Raises LIBRARY_NOT_FOUND, DEFINITION_INVALID (``faults`` has every fault), ETAG_MISMATCH."""

        async def plan(stamp: Stamp) -> PlannedChange[Saved]:
            home = await self.library(library)
            reference = Reference(library=home.name, name=draft.name)
            before = await self._catalog.definition(reference)
            check_etag(before, etag)
            after = _next_revision(home, draft, before, stamp)
            await self._check(home, [(after, before, "definition")])
            saved = Saved(definition=after, change=_change(before, after))
            if after is before:
                return PlannedChange(saved)
            bumped = _next_version(home, stamp, added=before is None)
            return PlannedChange(saved, [Put(bumped), Put(after)])

        return await self._transactions.execute(Saved, plan, origin=origin, validate_only=validate_only)

    async def delete(self, text: str, *, etag: str = "", origin: Origin = SERVER_ORIGIN) -> None:
        """Delete a definition with all its revisions.

        Raises FIELD_INVALID for a reference with a revision, DEFINITION_NOT_FOUND, ETAG_MISMATCH, and
        RESOURCE_IN_USE if it is in the standard library, or if another definition or an agent refers to
        it."""
        if _reference(text, "definition_id").revision:
            raise error(
                Reason.FIELD_INVALID,
                f"'{text[:100]}' names a revision. Only a whole definition can be deleted: omit @….",
                field="definition_id",
            )

        async def plan(stamp: Stamp) -> PlannedChange[EmptyResult]:
            definition = await self.definition(text)
            check_etag(definition, etag)
            _refuse_standard(definition.library, "its definitions")
            await refuse_if_used(self._transactions.whole, [definition], ())
            home = await self.library(definition.library_id)
            return PlannedChange(EmptyResult(), [Put(_next_version(home, stamp, added=-1)), Drop(definition)])

        await self._transactions.execute(EmptyResult, plan, origin=origin)

    async def apply(
        self,
        library: str,
        drafts: Sequence[DefinitionDraft],
        *,
        prune: bool = False,
        resources: PlanResources | None = None,
        origin: Origin = SERVER_ORIGIN,
        validate_only: bool = False,
    ) -> Applied:
        """Save many definitions of one library, all or none. The library is created if it does not exist.

        The definitions may refer to each other in any order. ``prune`` deletes the library's other
        definitions. ``resources`` plans agents and projects of the same commit. Raises FIELD_INVALID,
        LIMIT_EXCEEDED, DEFINITION_INVALID (``faults`` has every fault, with fields such as
        ``definitions[3].name``), and RESOURCE_IN_USE if other definitions refer to a pruned one."""
        _check_batch(library, drafts)

        async def plan(stamp: Stamp) -> PlannedChange[Applied]:
            known = await self._catalog.library(library)
            home = known or _new_library(library, "", stamp)
            latest = await latest_revisions(
                self._catalog, home, [draft.name for draft in drafts], everything=prune
            )
            saved = [
                (
                    _next_revision(home, draft, latest.get(draft.name), stamp),
                    latest.get(draft.name),
                    f"definitions[{index}]",
                )
                for index, draft in enumerate(drafts)
            ]
            await self._check(home, saved)
            kept = {draft.name for draft in drafts}
            removed = [latest[name] for name in sorted(latest) if prune and name not in kept]
            if removed:
                _refuse_standard(library, "its definitions")
                await refuse_if_used(self._transactions.whole, removed, [after for after, _, _ in saved])
            planned = _apply_plan(home, known is None, saved, removed, stamp)
            if resources is None:
                return planned
            changes, reported = await resources([after for after, _, _ in saved], removed, stamp)
            applied = replace(planned.result, resources=tuple(reported))
            return PlannedChange(applied, [*planned.changes, *changes])

        return await self._transactions.execute(Applied, plan, origin=origin, validate_only=validate_only)

    async def _check(self, home: Library, saved: Sequence[tuple[Definition, Definition | None, str]]) -> None:
        """Raise every fault of every changed definition at once."""
        changed = [(after, before, path) for after, before, path in saved if after is not before]
        if not changed:
            return
        faults: list[Fault] = []
        index = DefinitionIndex(after for after, _, _ in saved)
        await load_dependencies(index, self._catalog, [(after.spec, home.name) for after, _, _ in changed])
        resolver = IndexResolver(index, self._actions, self._providers)
        for number, (after, before, path) in enumerate(changed):
            if number % YIELD_EVERY == YIELD_EVERY - 1:
                await asyncio.sleep(0)
            if before is not None and before.kind is not after.kind:
                message = (
                    f"'{after.name}' is a {before.kind}, and its kind cannot change. Give the {after.kind} "
                    "another name."
                )
                faults.append(Fault(reason=Reason.DEFINITION_INVALID, message=message, field=f"{path}.kind"))
            faults.extend(under(f"{path}.{after.kind}", check_spec(after.spec, home.name, resolver)))
        if faults:
            raise WonderError(faults[0], faults=tuple(faults))


# --- the parts of a plan ----------------------------------------------------------------------------


def _next_revision(
    home: Library, draft: DefinitionDraft, before: Definition | None, stamp: Stamp
) -> Definition:
    """Return the definition that saving ``draft`` creates; ``before`` itself if the content is the same."""
    content_hash = draft.content_hash()
    if before is not None and before.content_hash == content_hash:
        return before
    return Definition(
        id=before.id if before else random_id("def", stamp.at_ms),
        library_id=home.id,
        library=home.name,
        revision=before.revision + 1 if before else 1,
        draft=replace(draft, library=""),
        content_hash=content_hash,
        created_ms=before.created_ms if before else stamp.at_ms,
        updated_ms=stamp.at_ms,
        updated_by=stamp.by,
    )


def _change(before: Definition | None, after: Definition | None) -> DefinitionChange:
    known = after or before
    assert known is not None
    if after is before:
        action = ChangeAction.UNCHANGED
    elif before is None:
        action = ChangeAction.CREATED
    else:
        action = ChangeAction.UPDATED if after else ChangeAction.DELETED
    lines = "" if after is before else diff(before.draft if before else None, after.draft if after else None)
    return DefinitionChange(
        action=action,
        kind=known.kind,
        name=known.name,
        old_revision=before.revision if before else 0,
        new_revision=after.revision if after else 0,
        diff=tuple(lines.splitlines()),
    )


def _apply_plan(
    home: Library,
    is_new: bool,
    saved: Sequence[tuple[Definition, Definition | None, str]],
    removed: Sequence[Definition],
    stamp: Stamp,
) -> PlannedChange[Applied]:
    puts: list[Change] = [Put(after) for after, before, _ in saved if after is not before]
    drops: list[Change] = [Drop(definition) for definition in removed]
    added = sum(before is None for _, before, _ in saved) - len(removed)
    library = home
    if is_new:
        library = replace(home, definition_count=added)
    elif puts or drops:
        library = _next_version(home, stamp, added=added)
    changes = [Put(library), *drops, *puts] if is_new or puts or drops else []
    reported = [_change(before, after) for after, before, _ in saved] + [
        _change(each, None) for each in removed
    ]
    return PlannedChange(Applied(changes=tuple(reported), library=library), changes)


def _new_library(name: str, description: str, stamp: Stamp) -> Library:
    return Library(
        id=random_id("lib", stamp.at_ms),
        name=name,
        description=description,
        created_ms=stamp.at_ms,
        updated_ms=stamp.at_ms,
        updated_by=stamp.by,
    )


def _next_version(library: Library, stamp: Stamp, *, added: int) -> Library:
    return replace(
        library,
        definition_count=library.definition_count + added,
        version=library.version + 1,
        updated_ms=stamp.at_ms,
        updated_by=stamp.by,
    )


# --- checks -----------------------------------------------------------------------------------------


def _check_library(name: str, description: str) -> None:
    if not is_library_name(name):
        raise error(
            Reason.FIELD_INVALID,
            f"'{name[:100]}' is not a valid name of a library. Use {LIBRARY_RULE}.",
            field="library.name",
        )
    if len(description.encode()) > MAX_DESCRIPTION_BYTES:
        raise error(
            Reason.FIELD_INVALID,
            f"The description has {len(description.encode())} bytes; the maximum is {MAX_DESCRIPTION_BYTES}.",
            field="library.description",
        )


def _check_batch(library: str, drafts: Sequence[DefinitionDraft]) -> None:
    if not is_library_name(library):
        raise error(
            Reason.FIELD_INVALID,
            f"'{library[:100]}' is not a valid name of a library. Use {LIBRARY_RULE}.",
            field="library",
        )
    if len(drafts) > MAX_APPLY:
        raise error(
            Reason.LIMIT_EXCEEDED,
            f"The request has {len(drafts)} definitions; the maximum is {MAX_APPLY}.",
            field="definitions",
        )
    seen: set[str] = set()
    for index, draft in enumerate(drafts):
        if draft.name in seen:
            raise error(
                Reason.FIELD_INVALID,
                f"Two definitions have the name '{draft.name}'. A name is unique in its library.",
                field=f"definitions[{index}].name",
            )
        seen.add(draft.name)


def _refuse_standard(library: str, what: str) -> None:
    if library == STANDARD_LIBRARY:
        raise error(
            Reason.RESOURCE_IN_USE,
            f"The library '{STANDARD_LIBRARY}' belongs to the server; {what} cannot be deleted.",
        )


def _reference(text: str, field: str) -> Reference:
    reference = parse_reference(text)
    if reference is None or not (reference.definition_id or reference.library):
        raise error(
            Reason.FIELD_INVALID,
            f"'{text[:100]}' is not a reference. Use def_… or library/name, with or without @revision.",
            field=field,
        )
    return reference


def _pair(cursor: JsonValue) -> tuple[str, str]:
    library, name = cursor
    return (str(library), str(name))
