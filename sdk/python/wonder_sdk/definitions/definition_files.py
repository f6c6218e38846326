"""Conversion between a folder of YAML files and the definitions of a library.

::

    my-library/
      library.yaml          name: acme/tools
      tools.yaml            one document per definition, '---' between several in a file
      flows/review.yaml     subfolders of any depth

A definition ::

    name: remember
    description: Keep a fact for later conversations.
    labels: {team: core}
    tool:                   # one of persona, tool, workflow, task, action, model_profile
      target_type: task
      target_id: write_memory

A document can also hold an agent or a project, with the fields of the message below the key ::

    name: librarian
    description: Knows the shop's books.
    agent:
      persona_id: librarian     # of this library
      project_ids: [shop]
    ---
    name: shop
    project: {description: The shop.}

An optional ``kind: tool`` must match the definition. `load` ignores the fields that the server sets, such as
``id``, ``revision`` and times, so a copied response is a valid file.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import betterproto2
import yaml

from wonder_sdk._proto.wonder import v1
from wonder_sdk.definitions import documents
from wonder_sdk.definitions.documents import DocumentError
from wonder_sdk.errors import Violation
from wonder_sdk.json_types import JsonDict

LIBRARY_FILE = "library.yaml"
KINDS = ("persona", "tool", "workflow", "task", "action", "model_profile")
_SET_BY_SERVER = frozenset(
    {"id", "library_id", "revision", "content_hash", "create_time", "update_time", "etag"}
)
_RESOURCE_SET_BY_SERVER = frozenset(
    {"id", "usage", "create_time", "update_time", "etag", "updated_by", "failing_hooks"}
)
# A value that looks like an expression with YAML syntax in it, and an example of the quotes that it needs.
_EXPRESSION = re.compile(r":\s+[^\s#'].*[\"'?{}\[\]!&|*%]|:\s+[\"'&*!%@`|>{\[]")
_QUOTED = """condition: 'state.kind == "a" ? 1 : 2'"""
_RESOURCES = ("agent", "project")
_VIOLATION = re.compile(r"(definitions|agents|projects)\[(\d+)\]\.?(.*)")


class DefinitionFilesError(Exception):
    """Files with faults. ``str()`` has one line per fault: file, line, message.

    ``folder`` has the readable parts if every definition has some, otherwise it is None. A server can find
    more faults in it; ``explain`` returns those that ``faults`` does not contain.
    """

    def __init__(
        self, faults: Iterable[str], folder: Folder | None = None, locations: Iterable[str] = ()
    ) -> None:
        self.faults = tuple(faults)
        self.folder = folder
        self._locations = tuple(f"{place}: " for place in locations)
        super().__init__("\n".join(self.faults))

    def explain(self, violations: Iterable[Violation]) -> list[str]:
        """Return the lines of `Folder.explain`, without those for the locations of ``faults``."""
        lines = self.folder.explain(violations) if self.folder is not None else []
        return [each for each in lines if not each.startswith(self._locations or ("\0",))]


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a definition: its file, and its document as YAML nodes."""

    file: Path
    node: yaml.Node

    def location(self, path: str) -> str:
        """Return ``file:line`` of a field of the document."""
        return f"{self.file}:{documents.line_of(self.node, path)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """The content of a folder of definition files.

    ``library`` is empty without a ``library.yaml``. ``sources`` has one source for each definition, in
    the same order. ``agents`` and ``projects`` have theirs in ``agent_sources`` and ``project_sources``.
    """

    library: str
    description: str
    definitions: list[v1.Definition]
    sources: list[Source]
    agents: list[v1.Agent] = field(default_factory=list)
    agent_sources: list[Source] = field(default_factory=list)
    projects: list[v1.Project] = field(default_factory=list)
    project_sources: list[Source] = field(default_factory=list)

    def explain(self, violations: Iterable[Violation]) -> list[str]:
        """Return a server's violations with source locations.

        ``definitions[3].tool.name`` becomes ``file:line: tool.name: …``. The lines are in the order of
        the files, those without a source last.
        """
        groups = {
            "definitions": self.sources,
            "projects": self.project_sources,
            "agents": self.agent_sources,
        }
        projects_from = len(self.sources)
        firsts = {
            "definitions": 0,
            "projects": projects_from,
            "agents": projects_from + len(self.project_sources),
        }
        lines: list[tuple[int, int, str]] = []
        for violation in violations:
            found = _VIOLATION.fullmatch(violation.field)
            # Faults of the client's own encoding begin with the field.
            text = violation.description.removeprefix(f"{violation.field}: ")
            if found and (number := int(found[2])) < len(groups[found[1]]):
                source, path = groups[found[1]][number], found[3]
                parts = (source.location(path), path, text)
                line = documents.line_of(source.node, path)
                lines.append((firsts[found[1]] + number, line, ": ".join(part for part in parts if part)))
            else:
                lines.append((sys.maxsize, 0, f"{violation.field}: {text}"))
        return [text for _, _, text in sorted(lines, key=lambda each: each[:2])]


def load(path: Path) -> Folder:
    """Read every ``.yaml`` and ``.yml`` file below a folder, or one file.

    A ``library.yaml`` in the folder of a single file names its library.
    Raises `DefinitionFilesError` with every fault, and `OSError`.
    """
    faults: list[str] = []
    locations: list[str] = []
    is_whole = True
    header = v1.Library()
    folder = Folder(library="", description="", definitions=[], sources=[])
    root = path if path.is_dir() else path.parent
    for file in _files(path):
        found: list[DocumentError] = []
        try:
            if file.name == LIBRARY_FILE:
                header = _library(file, found) if file.parent == root else header
            else:
                for source in _documents(file):
                    is_whole = _add(folder, source, found) and is_whole
        except yaml.YAMLError as fault:
            faults.append(_syntax(file, fault))
            is_whole = False
        except UnicodeDecodeError:
            faults.append(f"{file}:1: the file is not UTF-8 text; save it as UTF-8")
            is_whole = False
        for problem in found:
            place = f"{file}:{problem.line}" + (f": {problem.path}" if problem.path else "")
            locations.append(place)
            faults.append(f"{place}: {problem.message}")
    doubles = [
        *_duplicates(folder.definitions, folder.sources),
        *_duplicates(folder.agents, folder.agent_sources),
        *_duplicates(folder.projects, folder.project_sources),
    ]
    folder = replace(folder, library=header.name, description=header.description)
    if faults or doubles:
        raise DefinitionFilesError(faults + doubles, folder if is_whole and not doubles else None, locations)
    return folder


def dump(definition: v1.Definition) -> str:
    """Return a definition as YAML. `load` of that text returns an equal definition."""
    document = documents.write(definition)
    kind, _ = betterproto2.which_one_of(definition, "spec")
    kept = {key: document[key] for key in ("name", "description", "labels", kind) if key in document}
    return to_yaml(kept)


def dump_library(library: v1.Library) -> str:
    """Return the text of a library's ``library.yaml``."""
    document = {"name": library.name, "description": library.description}
    return to_yaml({key: value for key, value in document.items() if value})


def save(folder: Path, library: v1.Library, definitions: Iterable[v1.Definition]) -> list[Path]:
    """Write a library with one file per definition. Return the files; others in the folder remain."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {LIBRARY_FILE: dump_library(library)}
    for definition in definitions:
        # A definition may have the name `library`, but `library.yaml` describes the library.
        stem = "library.definition" if definition.name == "library" else definition.name
        texts[f"{stem}.yaml"] = dump(definition)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        beside = path.with_name(LIBRARY_FILE)
        if beside.is_file() and beside != path:
            yield beside
        yield path
        return
    for file in sorted(path.rglob("*")):
        hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
        if file.suffix in (".yaml", ".yml") and file.is_file() and not hidden:
            yield file


def _documents(file: Path) -> Iterator[Source]:
    text = file.read_text(encoding="utf-8")
    for node in yaml.compose_all(text, Loader=yaml.SafeLoader):
        if node.tag != "tag:yaml.org,2002:null":  # only comments
            yield Source(file, node)


def _library(file: Path, faults: list[DocumentError]) -> v1.Library:
    found = list(_documents(file))
    if len(found) != 1:
        message = f"the file has {len(found)} documents; write one with the library's name and description"
        faults.append(DocumentError(1, "", message))
        return v1.Library()
    library: v1.Library = documents.read(
        v1.Library, found[0].node, faults, skip=_SET_BY_SERVER | {"definition_count"}
    )
    if not library.name:
        faults.append(DocumentError(1, "", "the library needs a name"))
    return library


def _add(folder: Folder, source: Source, faults: list[DocumentError]) -> bool:
    """Add the definition, agent or project of a document. Return False if it cannot be read."""
    kind = _resource_kind(source.node)
    if not kind:
        definition = _definition(source, faults)
        if definition is not None:
            folder.definitions.append(definition)
            folder.sources.append(source)
        return definition is not None
    flat = _flat(source.node, kind, faults)
    message: type[v1.Agent | v1.Project] = v1.Agent if kind == "agent" else v1.Project
    resource = documents.read(message, flat, faults, skip=_RESOURCE_SET_BY_SERVER)
    if not resource.name:
        faults.append(DocumentError(documents.line(source.node), "", f"the {kind} needs a name"))
        return False
    if isinstance(resource, v1.Agent):
        folder.agents.append(resource)
        folder.agent_sources.append(Source(source.file, flat))
    else:
        folder.projects.append(resource)
        folder.project_sources.append(Source(source.file, flat))
    return True


def _resource_kind(node: yaml.Node) -> str:
    """Return ``agent`` or ``project`` for a document of one, else an empty string."""
    if not isinstance(node, yaml.MappingNode):
        return ""
    keys = {key.value for key, _ in node.value}
    return next((kind for kind in _RESOURCES if kind in keys and not keys & set(KINDS)), "")


def _flat(node: yaml.Node, kind: str, faults: list[DocumentError]) -> yaml.MappingNode:
    """Return the message of an agent or project: its fields below the key, and those beside it."""
    entries: list[tuple[yaml.Node, yaml.Node]] = []
    for key, child in node.value:
        if key.value == "kind":
            if child.value != kind:
                problem = f"is {child.value}, but the document defines the {kind}"
                faults.append(DocumentError(documents.line(key), "kind", problem))
        elif key.value != kind:
            entries.append((key, child))
        elif isinstance(child, yaml.MappingNode):
            entries += child.value
        elif child.tag != "tag:yaml.org,2002:null":
            faults.append(DocumentError(documents.line(key), kind, "must be a mapping"))
    return yaml.MappingNode(node.tag, entries, node.start_mark, node.end_mark)


def _meant(said: Collection[str], present: Sequence[str]) -> str:
    """Return a hint for a document without a kind: the kind that a key resembles, or that others exist."""
    if present:
        return ""
    for key in said:
        if found := documents.closest_field(key, [*KINDS, *_RESOURCES]):
            return f"; did you mean `{found}:` in place of `{key}:`?"
    return "; an agent has `agent:`, a project `project:`"


def _definition(source: Source, faults: list[DocumentError]) -> v1.Definition | None:
    """Return the readable parts of a definition, or None if it has no name or no single kind."""
    found: list[DocumentError] = []
    definition: v1.Definition = documents.read(v1.Definition, source.node, found, skip=_SET_BY_SERVER)
    if not isinstance(source.node, yaml.MappingNode):
        faults += found
        return None
    said = {key.value: child.value for key, child in source.node.value}
    present = [key for key in said if key in KINDS]
    kind = str(said.get("kind", ""))
    first = documents.line(source.node)
    defined, _ = betterproto2.which_one_of(definition, "spec")
    if len(present) > 1 or not defined:
        below = (
            f"; put its fields below `{kind}:`" if kind in KINDS and not present else _meant(said, present)
        )
        faults += (each for each in found if "." in each.path)  # this fault replaces those of the top level
        faults.append(DocumentError(first, "", f"a definition has exactly one of {', '.join(KINDS)}{below}"))
        return None
    faults += found
    if kind and definition.kind is not v1.DefinitionKind[defined.upper()]:
        line = documents.line_of(source.node, "kind")
        faults.append(DocumentError(line, "kind", f"is {kind}, but the document defines a {defined}"))
    if not definition.name:
        faults.append(DocumentError(first, "", "a definition needs a name"))
        return None
    return definition


def _duplicates(
    definitions: Sequence[v1.Definition | v1.Agent | v1.Project], sources: list[Source]
) -> Iterator[str]:
    first: dict[str, Source] = {}
    for definition, source in zip(definitions, sources, strict=True):
        before = first.setdefault(definition.name, source)
        if before is not source:
            yield (
                f"{source.location('name')}: {definition.name} is already defined "
                f"at {before.location('name')}"
            )


def _syntax(file: Path, fault: yaml.YAMLError) -> str:
    mark = getattr(fault, "problem_mark", None)
    problem = getattr(fault, "problem", None) or "the file is not valid YAML"
    quoted = ""
    if mark is not None:
        lines = file.read_text(encoding="utf-8").splitlines()
        if mark.line < len(lines) and _EXPRESSION.search(lines[mark.line]):
            quoted = f"; put a whole expression in quotes: {_QUOTED}"
    return f"{file}:{mark.line + 1 if mark else 1}: {problem}{quoted}"


class _Dumper(yaml.SafeDumper):
    """A dumper with block style for long text, indented lists and no anchors."""

    def ignore_aliases(self, data: object) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def to_yaml(document: JsonDict) -> str:
    """Return a document as YAML."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
