"""Tests of names in repositories: valid ones, and ones that could reach outside."""

from __future__ import annotations

import pytest

from wonder_server.core import paths
from wonder_server.core.errors import Reason, WonderError

GOOD_PATHS = (
    "a",
    "a/b.md",
    "ä ö/ü",
    "-x",
    "...",
    "a..b",
    ".github/x",
    "git",
    "x.git",
    "a:b",
    "*?[",
    "~",
    " a ",
)
BAD_PATHS = (
    "", "/a", "a/", "a//b", ".", "..", "a/..", "./a", ".git", "A/.GIT/b", "git~1", "a\\b", "a\0",
    "a\n", "\x7f",
    ".g\u200dit", ".git ", ".git.", ".git::$DATA", "\ud800", "x" * 256, "a/" * 300 + "a",
)  # fmt: skip
GOOD_BRANCHES = ("main", "a/b", "wonder/conv-01ABC", "ä", "a.b", "a-b", "HEADER", "a" * 200)
BAD_BRANCHES = (
    "", "@", "-a", "/a", "a/", ".a", "a/.b", "a..b", "a b", "a~", "a^", "a:b", "a?", "a*", "a[",
    "a\\b", "a@{b",
    "a.lock", "a.lock/b", "a.", "a//b", "a\x01", "a" * 201, "\ud800",
    "0123456789abcdef0123456789abcdef01234567",
)  # fmt: skip
GOOD_URLS = ("/srv/git/x.git", "https://example.com/x.git", "ssh://git@host:22/x", "git@host:team/x.git",
             "file:///srv/x", "/with space/x", "git://host/x", "https://user:key@example.com:8443/a",
             "ssh://git@[2001:db8::1]/a", "file:///srv/a%20b", "git://h")  # fmt: skip
BAD_URLS = ("", "x", "../x", "-x", "--upload-pack=x", "ext::sh -c x", "fd::1", "http://",
            "ftp://h/x", "/a\nb", "ssh://-oProxyCommand=touch%20x/a", "ssh://-x@host/a", "ssh://git@-x/a",
            "-x@host:a", "git@-x:a", "git@host:-x", "git@host:", "https://-x/a", "file://host/a",
            "file:relative", "https:///a", "http://h:x/a", "https://example.com\u00a0/a",
            "transport::https://example.com/a", "EXT::x", "git+ssh://host/a",
            "https://a b", "a@b", "x" * 3_000)  # fmt: skip


def refused(check: object, value: str) -> Reason:
    with pytest.raises(WonderError) as problem:
        check(value, "somewhere")  # type: ignore[operator]
    assert problem.value.fault.field == "somewhere"
    return problem.value.fault.reason


@pytest.mark.parametrize("path", GOOD_PATHS)
def test_valid_paths_pass(path: str) -> None:
    assert paths.check_path(path) == path


@pytest.mark.parametrize("path", BAD_PATHS)
def test_invalid_paths_are_rejected(path: str) -> None:
    assert refused(paths.check_path, path) is Reason.FIELD_INVALID


@pytest.mark.parametrize("branch", GOOD_BRANCHES)
def test_valid_branch_names_pass(branch: str) -> None:
    assert paths.check_branch(branch) == paths.check_work_branch(branch) == branch


@pytest.mark.parametrize("branch", BAD_BRANCHES)
def test_invalid_branch_names_are_rejected(branch: str) -> None:
    assert refused(paths.check_branch, branch) is Reason.FIELD_INVALID


def test_the_branches_of_an_origin_are_read_only() -> None:
    assert refused(paths.check_work_branch, "origin/main") is Reason.FIELD_INVALID


@pytest.mark.parametrize(
    "path",
    ["a\u202egpj.md", "a\u2066b", "a\u200eb", "a\u061cb", "\ufeffa", "a\u00adb", "a\u200bb", "a\u2028b",
     "a\u2060b", "a\ue000b", "a\U000e0041", "a ", " a", "a /b", "a/ b", "a\u00a0", "a\u3000/b", "a\u0085b"],
)  # fmt: skip
def test_new_paths_have_no_invisible_characters(path: str) -> None:
    assert refused(paths.check_new_path, path) is Reason.FIELD_INVALID


def test_new_paths_may_be_in_any_language() -> None:
    for path in (
        "a b/c d.md",
        "ünï/çödé",
        "设计/认证.md",
        "می\u200cخواهم",
        "👩\u200d💻.md",
        "a.",
        "עברית/מסמך",
    ):
        assert paths.check_new_path(path) == path


@pytest.mark.parametrize("url", GOOD_URLS)
def test_valid_repository_urls_pass(url: str) -> None:
    assert paths.check_repository_url(url) == url


@pytest.mark.parametrize("url", BAD_URLS)
def test_invalid_repository_urls_are_rejected(url: str) -> None:
    assert refused(paths.check_repository_url, url) is Reason.FIELD_INVALID


def test_prefixes_of_paths_are_checked() -> None:
    for prefix in ("", "a", "a/", "a/b", "des"):
        assert paths.check_prefix(prefix) == prefix
    for prefix in ("../", "/", "a//", ".git/", "a\0"):
        assert refused(paths.check_prefix, prefix) is Reason.FIELD_INVALID


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:key@example.com:8443/a", "https://user:***@example.com:8443/a"),
        ("HTTP://user:@example.com/a", "HTTP://user:***@example.com/a"),
        ("http://:key@example.com/a", "http://:***@example.com/a"),
    ],
)
def test_a_new_url_with_a_password_is_refused_without_the_password(url: str, shown: str) -> None:
    with pytest.raises(WonderError) as problem:
        paths.check_no_password(url, "somewhere")
    fault = problem.value.fault
    assert fault.reason is Reason.FIELD_INVALID and fault.field == "somewhere"
    assert shown in fault.message and "key@" not in fault.message and ".netrc" in fault.message
    assert paths.hide_passwords(f"fatal: '{url}/' not found") == f"fatal: '{shown}/' not found"


@pytest.mark.parametrize(
    "url",
    ["https://example.com/a", "https://me@example.com/a", "https://example.com:8443/a:b@c", "git@host:a",
     "ssh://git@host:22/x", "/srv/a:b@c", "https://[2001:db8::1]:443/a@b"],
)  # fmt: skip
def test_urls_without_a_password_pass(url: str) -> None:
    paths.check_no_password(url)
    assert paths.hide_passwords(url) == url
