"""Fixtures of the simulation."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def _heap_without_modules() -> Iterator[None]:
    """Exclude what exists before the histories from garbage collection.

    A full collection of all modules takes about 130 ms, and the histories cause one in about 15.
    """
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
