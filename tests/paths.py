"""Folders of the repository, for tests that read its files or start programs in it."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
