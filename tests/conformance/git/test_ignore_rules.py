"""Rules of `.gitignore`: the server ignores the same files as git, for many random rules."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from tests.services.content.repositories_kit import need_git
from wonder_server.adapters.git.worktree import safe_files

need_git()

ROUNDS = 60
PATHS = (
    "a", "b.log", "keep.log", "build/out", "build/deep/x", "src/build/x", "src/a", "src/b.log",
    "docs/a.md", "docs/x/y/z",
    "foo bar", "#hash", "!bang", "a[b]", "x/y/z/deep", "node_modules/m/index.js", "UPPER/A",
    ".hidden", "src/.hidden/a",
)  # fmt: skip
PIECES = (
    "*", "**", "?", "a", "b", "*.log", "!keep.log", "build", "src", "/", "/build", "build/",
    "**/x", "x/**", "docs/*.md",
    "[ab]", "[!a]", "[^b]*", "\\#hash", "\\!bang", "#comment", "foo bar", "foo\\ bar ",
    "node_modules/", "x/**/deep", "",
    "src/*", "!src/a", "deep", ".hidden", "**/build/", "a[[]b]", "[", "*.m[a-d]", "UPPER", "/*",
    "!/src/", "!*/", "z",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_the_rules_ignore_the_same_files_as_git(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    for path in PATHS:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("1")
    for place in (".gitignore", "src/.gitignore", "x/.gitignore"):
        rules = [
            chance.choice(PIECES) if chance.random() < 0.8 else chance.choice(PIECES) + chance.choice(PIECES)
            for _ in range(chance.randrange(5))
        ]
        (tmp_path / place).write_text("\n".join(rules) + chance.choice(("", "\n")))
    ours = {found.path for found in safe_files.walk(tmp_path, lambda path: False)}
    assert ours == _git_says(tmp_path), [
        (str(path.relative_to(tmp_path)), path.read_text()) for path in tmp_path.rglob(".gitignore")
    ]


def _git_says(folder: Path) -> set[str]:
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=folder, env=environment, check=True, capture_output=True, text=True
        ).stdout

    git("init", "--quiet")
    return set(git("ls-files", "-z", "--others", "--exclude-standard").split("\0")) - {""}
