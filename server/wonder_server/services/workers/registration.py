"""Validation of a worker's registration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Final

from wonder_server.core.definitions.references import NAME_RULE, is_definition_name
from wonder_server.core.errors import Fault, Reason, WonderError
from wonder_server.core.schema.schemas import check_schema
from wonder_server.services.workers.messages import Registration, WorkerKind

MAX_NAME_BYTES: Final = 128
MAX_DESCRIPTION_BYTES: Final = 4_096
MAX_KINDS: Final = 100
MAX_CONCURRENCY: Final = 1_000
MAX_PROJECTS: Final = 100


def check_registration(registration: Registration, reserved: Collection[str] = ()) -> None:
    """Raise all faults of a registration: FIELD_INVALID, and DEFINITION_INVALID for schemas.

    ``reserved`` are names that workers may not register. Call this in a thread: the check of large schemas
    can take a second."""
    faults = tuple(_faults(registration, reserved))
    if faults:
        raise WonderError(faults[0], faults=faults)


def _faults(given: Registration, reserved: Collection[str]) -> Iterator[Fault]:
    if not given.name.strip() or len(given.name.encode()) > MAX_NAME_BYTES:
        yield _invalid(
            "register.name",
            f"The name of a worker has 1 to {MAX_NAME_BYTES} bytes; this one has {len(given.name.encode())}.",
        )
    if not 1 <= len(given.kinds) <= MAX_KINDS:
        yield _invalid(
            "register.kinds",
            f"The worker registers {len(given.kinds)} action kinds; register 1 to {MAX_KINDS}.",
        )
        return
    if not 1 <= given.max_concurrency <= MAX_CONCURRENCY:
        yield _invalid(
            "register.max_concurrency",
            f"max_concurrency is {given.max_concurrency}; use 1 to {MAX_CONCURRENCY}.",
        )
    seen = Counter[str]()
    for index, kind in enumerate(given.kinds):
        seen[kind.name] += 1
        yield from _kind_faults(kind, f"register.kinds[{index}]", reserved)
        if seen[kind.name] == 2:
            yield _invalid(f"register.kinds[{index}].name", f"Action kind '{kind.name}' is registered twice.")


def _kind_faults(kind: WorkerKind, path: str, reserved: Collection[str]) -> Iterator[Fault]:
    if not is_definition_name(kind.name):
        yield _invalid(
            f"{path}.name",
            f"'{kind.name[:100]}' is not a valid name of an action kind. Use {NAME_RULE}.",
        )
    elif kind.name in reserved:
        yield _invalid(f"{path}.name", f"'{kind.name}' is an action kind of the server. Choose another name.")
    if len(kind.description.encode("utf-8", "replace")) > MAX_DESCRIPTION_BYTES:
        yield _invalid(
            f"{path}.description",
            f"The description is too long; the maximum is {MAX_DESCRIPTION_BYTES} bytes.",
        )
    if not 0 <= kind.max_concurrency <= MAX_CONCURRENCY:
        yield _invalid(
            f"{path}.max_concurrency",
            f"max_concurrency is {kind.max_concurrency}; use 1 to {MAX_CONCURRENCY}, or 0 for no own limit.",
        )
    for name in ("input_schema", "output_schema"):
        problem = check_schema(getattr(kind, name))
        if problem is not None:
            place = f"{path}.{name}" + (f".{problem.path}" if problem.path else "")
            yield Fault(reason=Reason.DEFINITION_INVALID, message=problem.message, field=place)


def conflict(kind: WorkerKind, known: WorkerKind) -> str:
    """Return the field in which two declarations of one kind differ; empty if they agree. The maximum
    concurrency and the description, which is for people, may differ."""
    for name in ("idempotent", "input_schema", "output_schema"):
        if getattr(kind, name) != getattr(known, name):
            return name
    return ""


def _invalid(field: str, message: str) -> Fault:
    return Fault(reason=Reason.FIELD_INVALID, message=message, field=field)
