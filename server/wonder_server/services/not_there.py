"""What to say of a definition that is not there: what was probably meant."""

from __future__ import annotations

from dataclasses import replace

from wonder_server.core.definitions.references import Reference
from wonder_server.core.definitions.resources import Definition
from wonder_server.core.definitions.specs import Kind
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.likeness import did_you_mean
from wonder_server.ports.catalog import Catalog, DefinitionQuery

MAX_NAMES = 1_000
"""So many names are compared with what was said."""


async def not_there(
    catalog: Catalog,
    text: str,
    reference: Reference | None,
    *,
    kind: Kind | None = None,
    found: Definition | None = None,
    field: str = "",
) -> WonderError:
    """DEFINITION_NOT_FOUND for ``text``, which was to lead to a definition, of ``kind`` if one is said.
    ``found`` is what it led to, of another kind."""

    def refusal(message: str) -> WonderError:
        return error(Reason.DEFINITION_NOT_FOUND, message, field=field)

    wanted = _words(kind) if kind else "definition"
    if found is not None:
        return refusal(f"'{text}' is {_article(_words(found.kind))}, not {_article(wanted)}.")
    if reference is not None and reference.revision:
        newest = await catalog.definition(replace(reference, revision=0))
        if newest is not None and newest.kind is (kind or newest.kind):
            has = f"revisions 1 to {newest.revision}" if newest.revision > 1 else "revision 1"
            return refusal(f"There is no {wanted} '{text}': it only has {has}.")
    query = DefinitionQuery(kinds=(kind,) if kind else (), limit=MAX_NAMES)
    names = [f"{each.library}/{each.name}" for each in await catalog.definitions(query)]
    base = text.partition("@")[0]
    same = sorted(name for name in names if name.rpartition("/")[2] == base.rpartition("/")[2])
    meant = f" (did you mean '{same[0]}'?)" if same else did_you_mean(base, names)
    return refusal(f"There is no {wanted} '{text}'{meant}.")


def _words(kind: Kind) -> str:
    return kind.replace("_", " ")


def _article(words: str) -> str:
    return f"an {words}" if words[0] in "aeiou" else f"a {words}"
