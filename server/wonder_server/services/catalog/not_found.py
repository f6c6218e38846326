"""Errors for a missing definition, agent or project, with the closest existing name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wonder_server.core.definitions.references import Reference
from wonder_server.core.definitions.resources import Definition
from wonder_server.core.definitions.specs import Kind
from wonder_server.core.errors import Reason, WonderError, error, not_found
from wonder_server.core.suggestions import closest, did_you_mean, suggestion
from wonder_server.ports.catalog import DefinitionQuery
from wonder_server.ports.scoped import ScopedCatalog

MAX_COMPARED_NAMES = 1_000
"""Number of names to compare."""
MAX_QUOTED_CHARACTERS = 100
"""Maximum length of a key in a message."""


async def definition_not_found(
    catalog: ScopedCatalog,
    text: str,
    reference: Reference | None,
    *,
    kind: Kind | None = None,
    found: Definition | None = None,
    field: str = "",
) -> WonderError:
    """Return DEFINITION_NOT_FOUND for the reference ``text`` to a definition, of ``kind`` if given. ``found``
    is the definition of another kind to which it leads."""

    def refusal(place: str, next_step: str = "") -> WonderError:
        reason = Reason.DEFINITION_NOT_FOUND
        return not_found(reason, text, field=field, place=place, noun=wanted, next_step=next_step)

    wanted = _kind_name(kind) if kind else "definition"
    if found is not None:
        message = f"'{text}' is {_with_article(_kind_name(found.kind))}, not {_with_article(wanted)}."
        return error(Reason.DEFINITION_NOT_FOUND, message, field=field, id=text[:MAX_QUOTED_CHARACTERS])
    if reference is not None and reference.revision:
        newest = await catalog.definition(replace(reference, revision=0))
        if newest is not None and newest.kind is (kind or newest.kind):
            has = f"revisions 1 to {newest.revision}" if newest.revision > 1 else "revision 1"
            return refusal(f": it only has {has}", "Name one of them, or omit @revision for the newest.")
    query = DefinitionQuery(kinds=(kind,) if kind else (), limit=MAX_COMPARED_NAMES)
    names = [f"{each.library}/{each.name}" for each in await catalog.definitions(query)]
    closest_name = _closest_name(text.partition("@")[0], names)
    return refusal(suggestion(closest_name))


async def agent_not_found(catalog: ScopedCatalog, key: str, *, field: str = "") -> WonderError:
    """Return AGENT_NOT_FOUND for an id or a name."""
    names = [each.name for each in await catalog.agents("", "", MAX_COMPARED_NAMES)] if key else []
    return not_found(Reason.AGENT_NOT_FOUND, key, field=field, place=did_you_mean(key, names))


async def project_not_found(catalog: ScopedCatalog, key: str, *, field: str = "") -> WonderError:
    """Return PROJECT_NOT_FOUND for an id or a name."""
    names = [each.name for each in await catalog.projects("", MAX_COMPARED_NAMES)] if key else []
    return not_found(Reason.PROJECT_NOT_FOUND, key, field=field, place=did_you_mean(key, names))


def _closest_name(text: str, names: Sequence[str]) -> str:
    """Return the closest of the names ``library/name`` to ``text``. Names are compared within the closest
    library: names in one library are not alike because of its name."""
    library, _, name = text.rpartition("/")
    same = sorted(each for each in names if each.rpartition("/")[2] == name)
    if same:
        return same[0]
    if library:
        library = closest(library, {each.rpartition("/")[0] for each in names})
        names = [each for each in names if each.rpartition("/")[0] == library]
    full = {each.rpartition("/")[2]: each for each in sorted(names, reverse=True)}
    return full.get(closest(name, full), "")


def _kind_name(kind: Kind) -> str:
    return kind.replace("_", " ")


def _with_article(words: str) -> str:
    return f"an {words}" if words[0] in "aeiou" else f"a {words}"
