"""Names in repositories: paths of files and names of branches from clients and models.

The checks reject names that could reach outside the repository, that git reserves, and that file systems do
not allow. An invalid name is rejected, never corrected, since two names must not become one.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final
from urllib.parse import urlsplit

from wonder_server.core.errors import Reason, error
from wonder_server.core.network_address import authority_problem

MAX_PATH_BYTES: Final = 512
MAX_PART_BYTES: Final = 255
MAX_BRANCH_BYTES: Final = 200

_IGNORED: Final = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
"""Characters that some file systems ignore in names: to them ``.g\u200cit`` is ``.git``."""

_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Categories of invisible characters. They include direction marks, such as U+202E, after which ``gpj.exe``
reads ``exe.jpg``.
"""

_JOINERS: Final = "\u200c\u200d"
"""Invisible characters that Persian, Hindi and other scripts require, and emoji too."""

_ID: Final = re.compile(r"[0-9a-fA-F]{40}\Z")
"""Pattern of a commit's id."""

_BRANCH_FORBIDS: Final = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(/|\Z)|\A[-./]|[./]\Z")


def check_path(path: str, field: str = "path") -> str:
    """Return ``path`` if it is a valid file path in a repository. Raises FIELD_INVALID otherwise."""
    problem = path_problem(path)
    if problem:
        raise error(Reason.FIELD_INVALID, f"{field} {problem}.", field=field)
    return path


def check_new_path(path: str, field: str = "path") -> str:
    """Return ``path`` if a new document may have it. Raises FIELD_INVALID otherwise.

    It is stricter than `check_path`, which existing documents must pass: a new path has no invisible
    characters.
    """
    check_path(path, field)
    for character in path:
        if unicodedata.category(character) in _INVISIBLE and character not in _JOINERS:
            raise error(
                Reason.FIELD_INVALID,
                f"{field} contains the invisible character U+{ord(character):04X}. Remove it.",
                field=field,
            )
    for part in path.split("/"):
        if part != part.strip():
            raise error(
                Reason.FIELD_INVALID,
                f"{field} has the part {part!r}, which begins or ends with white space. Remove it.",
                field=field,
            )
    return path


def check_prefix(prefix: str, field: str = "path_prefix") -> str:
    """Return ``prefix`` if it is a valid beginning of a path. Raises FIELD_INVALID otherwise."""
    whole, _, _ = prefix.rpartition("/")
    if whole or prefix.startswith("/"):
        check_path(whole, field)
    if len(prefix.encode("utf-8", "replace")) > MAX_PATH_BYTES or "\0" in prefix:
        raise error(Reason.FIELD_INVALID, f"{field} {prefix[:80]!r} is not a valid path prefix.", field=field)
    return prefix


def path_problem(path: str) -> str:
    """Return the problem with ``path`` as the end of a sentence; "" if the path is valid."""
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        return "is not valid text"
    if not path:
        return "is required"
    if len(encoded) > MAX_PATH_BYTES:
        return f"has {len(encoded)} bytes; the maximum is {MAX_PATH_BYTES}"
    if any(ord(character) < 32 or ord(character) == 127 for character in path):
        return "must not contain control characters"
    if path.startswith("/") or "\\" in path:
        return "must be relative, with / between its parts"
    for part in path.split("/"):
        if part in ("", ".", ".."):
            return "must not have empty parts, '.' or '..'"
        if len(part.encode()) > MAX_PART_BYTES:
            return f"has a part of more than {MAX_PART_BYTES} bytes"
        if is_git_directory(part):
            return "must not have a part that git reserves, such as .git"
    return ""


def is_git_directory(part: str) -> bool:
    """Return True if some file system resolves this part of a path to ``.git``."""
    plain = _IGNORED.sub("", part).lower().rstrip(". ").partition(":")[0]
    return plain in (".git", "git~1")


def check_branch(branch: str, field: str = "branch") -> str:
    """Return ``branch`` if it is a valid branch name. Raises FIELD_INVALID otherwise."""
    is_valid = bool(branch) and branch != "@" and not _BRANCH_FORBIDS.search(branch) and not _ID.match(branch)
    try:
        is_valid = is_valid and len(branch.encode()) <= MAX_BRANCH_BYTES
    except UnicodeEncodeError:
        is_valid = False
    if not is_valid:
        raise error(
            Reason.FIELD_INVALID,
            f"{field} is not a valid branch name. Use a name such as 'main' or 'drafts/auth' with at most "
            f"{MAX_BRANCH_BYTES} bytes.",
            field=field,
        )
    return branch


def check_work_branch(branch: str, field: str = "branch") -> str:
    """Return ``branch`` if work may be committed to it. Raises FIELD_INVALID otherwise.

    The branches of an origin are read-only.
    """
    if branch.startswith("origin/"):
        raise error(Reason.FIELD_INVALID, f"{field} must not begin with origin/.", field=field)
    return check_branch(branch, field)


_FOLDER: Final = re.compile(r"(?:file://)?/[^\n]*\Z")
_HOST: Final = (
    r"(?:[A-Za-z0-9_.~%+][^\s/@:]*(?::[^\s/@]*)?@)?(?:[A-Za-z0-9_][A-Za-z0-9_.-]*|\[[0-9A-Fa-f:.]+\])"
)
_REACHED: Final = re.compile(rf"(?:https?|ssh|git)://{_HOST}(?::[0-9]{{1,5}})?(?:/[^\s]*)?\Z")
_SHORT: Final = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*@[A-Za-z0-9_][A-Za-z0-9_.-]*:[^\s:-][^\s]*\Z")
"""The short form of ``ssh``, such as ``git@example.com:team/code.git``.

User, host and path do not begin with a hyphen, since ``ssh`` would read it as an option.
"""

_AUTHORITY: Final = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:%@\[\]-]+\Z")
_USER: Final = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._-]{0,99}\Z")
_PORTS: Final = {"http": 80, "https": 443, "ssh": 22, "git": 9418}
_PASSWORD: Final = re.compile(r"(?i)\b(https?://[^\s/:@]*):[^\s/@]*@")
MAX_URL: Final = 2_000


def check_repository_url(url: str, field: str = "url") -> str:
    """Return ``url`` if it is a valid location of a repository. Raises FIELD_INVALID otherwise.

    A location is an absolute path of a folder, or a URL for https, ssh or git's own protocol.
    """
    plain = all(" " <= character != "\x7f" for character in url)
    known = _FOLDER.match(url) or _REACHED.match(url) or _SHORT.match(url)
    if len(url) > MAX_URL or not plain or not known or "::" in url.partition("/")[0]:
        raise error(
            Reason.FIELD_INVALID,
            f"{field} is not a valid repository location. Use an absolute path, or a URL such as "
            "https://example.com/team/code.git.",
            field=field,
        )
    try:
        repository_host(url)
    except ValueError as problem:
        raise error(
            Reason.FIELD_INVALID, f"{field} is not a valid repository location: {problem}.", field=field
        ) from None
    return url


def check_no_password(url: str, field: str = "url") -> None:
    """Raise FIELD_INVALID for an http(s) URL with a password, since every reader of the project would
    see it.
    """
    shown = hide_passwords(url)
    if shown != url:
        raise error(
            Reason.FIELD_INVALID,
            f"{field} is '{shown}': it holds a password, which all readers of the project would see. Remove"
            " the password and the colon before it. Store the password for the user that runs the server,"
            " in ~/.netrc or with git's credential helper (git config --global credential.helper store).",
            field=field,
        )


def hide_passwords(text: str) -> str:
    """Return ``text`` with ``***`` for the passwords in its http(s) URLs."""
    return _PASSWORD.sub(r"\1:***@", text)


def repository_host(url: str) -> tuple[str, int] | None:
    """Return the host and port that git connects to for a checked ``url``; None for a folder of this machine.

    Raises `ValueError` with a clause if git, ssh or curl could interpret the host or user differently.
    """
    if url.startswith(("/", "file://")):
        return None
    if "://" not in url:
        user, _, rest = url.partition("@")
        host, port = rest.partition(":")[0], 22
    else:
        scheme, _, rest = url.partition("://")
        authority = rest.partition("/")[0]
        if not _AUTHORITY.match(authority):
            raise ValueError("its host is not a valid host name")
        parts = urlsplit(f"//{authority}")
        user, host = authority.rpartition("@")[0], parts.hostname or ""
        port = parts.port if parts.port is not None else _PORTS[scheme]
        if scheme not in ("http", "https") and user and not _USER.match(user):
            raise ValueError("its user is not a valid user name")
    if "://" not in url and not _USER.match(user):
        raise ValueError("its user is not a valid user name")
    if problem := authority_problem("" if "://" not in url else authority, host):
        raise ValueError(problem)
    if not port:
        raise ValueError("its port is 0")
    return host, port
