"""Rules that the checks of all kinds of definition share."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from wonder_server.core.definitions.fault_list import FaultList, join
from wonder_server.core.definitions.specs import Retry
from wonder_server.core.expressions import check as check_expression
from wonder_server.core.json_types import JsonObject
from wonder_server.core.schema.output_schemas import check_output_schema
from wonder_server.core.schema.schemas import check_schema

MAX_TEXT_CHARACTERS = 65_536
MAX_MAPPING_ENTRIES = 100
MAX_ATTEMPTS = 10
MAX_TIMEOUT_MS = 24 * 3600 * 1000

BRANCH = ("branch", "item", "index")
"""Variables that only expressions in a branch of a fan-out have."""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")
_NODE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


@dataclass(frozen=True, slots=True)
class ExpressionScope:
    """The place of an expression.

    ``roots``: the variables it may use. ``owner``: its owner in words (``node 'a'``), for messages.
    ``branches``: True in a branch, where `BRANCH` can be used and ``branch.x`` be set; False outside of all
    branches; None where branches do not exist.
    """

    roots: tuple[str, ...]
    owner: str = ""
    branches: bool | None = None

    def knows(self) -> tuple[str, ...]:
        """Return the variables that the expression may use."""
        return (*self.roots, *BRANCH) if self.branches else self.roots

    def after(self) -> ExpressionScope:
        """Return the scope of expressions that also see ``result``."""
        return replace(self, roots=(*self.roots, "result"))


class Rules(FaultList):
    """A fault list with rules that add faults. ``path`` is the path of the checked value."""

    def text(self, path: str, text: str) -> None:
        if not text.strip():
            self.refuse(path, f"{path} must not be empty.")
        else:
            self.length(path, text)

    def length(self, path: str, text: str) -> None:
        if len(text) > MAX_TEXT_CHARACTERS:
            self.refuse(path, f"{path} is longer than {MAX_TEXT_CHARACTERS} characters.")

    def number(self, path: str, value: int, least: int, most: int) -> None:
        if not least <= value <= most:
            self.refuse(path, f"{path} must be from {least} to {most}, not {value}.")

    def count(self, path: str, items: Collection[object], most: int, *, least: int = 0) -> None:
        if len(items) < least:
            self.refuse(path, f"{path} needs at least {least}.")
        elif len(items) > most:
            self.refuse(path, f"{path} has {len(items)} entries; at most {most} are allowed.")

    def choice(self, path: str, value: str, choices: tuple[str, ...]) -> None:
        if value not in choices:
            self.refuse(path, f"{path} must be one of: {', '.join(filter(None, choices))}.")

    def unique(self, path: str, ids: list[str]) -> None:
        seen: set[str] = set()
        for index, identifier in enumerate(ids):
            if not _NODE_ID.match(identifier):
                self.refuse(f"{path}[{index}].id", "An id is 1 to 64 letters, digits, '_' or '-'.")
            elif identifier in seen:
                self.refuse(f"{path}[{index}].id", f"The id '{identifier}' is already in use.")
            seen.add(identifier)

    def retry(self, path: str, retry: Retry) -> None:
        self.number(f"{path}.max_attempts", retry.max_attempts, 1, MAX_ATTEMPTS)
        self.number(f"{path}.backoff_ms", retry.backoff_ms, 0, MAX_TIMEOUT_MS)
        self.number(f"{path}.timeout_ms", retry.timeout_ms, 1, MAX_TIMEOUT_MS)

    def schema(self, path: str, schema: JsonObject) -> None:
        if schema and (fault := check_schema(schema)):
            self.refuse(join(path, fault.path), fault.message)

    def output_schema(self, path: str, schema: JsonObject) -> None:
        """Check a schema that a model's answer must satisfy."""
        if fault := check_output_schema(schema):
            self.refuse(join(path, fault.path), f"{fault.message[:1].upper()}{fault.message[1:]}.")

    # --- expressions and mappings -------------------------------------------------------------------

    def condition(self, path: str, source: str, scope: ExpressionScope) -> None:
        """Check a condition. An empty one is always true."""
        if not source or (fault := check_expression(source, scope.knows())) is None:
            return
        owner = f" of {scope.owner}" if scope.owner else ""
        line = f"line {fault.line}, " if fault.line > 1 else ""
        reason = fault.message
        if scope.branches is False and check_expression(source, (*scope.roots, *BRANCH)) is None:
            reason += f"; {', '.join(BRANCH)} exist only in a branch, and this is not in a fan-out"
        self.refuse(path, f"In the expression{owner}, {line}column {fault.column}: {reason}")

    def expression(self, path: str, source: str, scope: ExpressionScope) -> None:
        if not source.strip():
            self.refuse(path, f"{path} must be an expression; for an empty text write '\"\"'.")
        else:
            self.condition(path, source, scope)

    def inputs(self, path: str, mapping: Mapping[str, str], scope: ExpressionScope) -> None:
        """Check a mapping of field names to expressions."""
        self.count(path, mapping, MAX_MAPPING_ENTRIES)
        for target, source in mapping.items():
            if not _IDENTIFIER.match(target):
                self.refuse(
                    join(path, target), f"'{target}' is not a valid field name. Use letters, digits and '_'."
                )
            self.expression(join(path, target), source, scope)

    def outputs(self, path: str, mapping: Mapping[str, str], scope: ExpressionScope) -> None:
        """Check a mapping of targets (``state.x``, ``output.x``, in a branch ``branch.x``) to expressions."""
        self.count(path, mapping, MAX_MAPPING_ENTRIES)
        for target, source in mapping.items():
            self.target(join(path, target), target, scope)
            self.expression(join(path, target), source, scope)

    def target(self, path: str, target: str, scope: ExpressionScope) -> None:
        """Check the target of a mapping or merge."""
        root, *fields = target.split(".")
        roots = ("state", "output", "branch") if scope.branches else ("state", "output")
        if root == "branch" and scope.branches is False:
            self.refuse(path, f"'{target}' cannot be set: this is not in a fan-out.")
        elif root not in roots or not fields or not all(map(_IDENTIFIER.match, fields)):
            known = " or ".join(f"{each}.…" for each in roots)
            self.refuse(path, f"'{target}' cannot be set: map to {known} .")
