"""Commands of git: which machines they may reach."""

from __future__ import annotations

from pathlib import Path

from wonder_server.adapters.git.storage.command import Git


def test_git_without_a_lease_accesses_repositories_of_this_machine_only(tmp_path: Path) -> None:
    """A program in git's place prints the protocols that it is allowed."""
    program = tmp_path / "git"
    program.write_text('#!/bin/sh\necho "$GIT_ALLOW_PROTOCOL"\n')
    program.chmod(0o755)
    git = Git({"PATH": f"{tmp_path}:/usr/bin:/bin"})
    output = git.run_remote(tmp_path, "ls-remote", "https://example.com/a", seconds=10)
    assert output.text == "file"
