"""Media types: what content shows, and declarations that are not those of the content."""

from __future__ import annotations

import pytest

from wonder_server.core.content.media_types import TypeCheck, is_text, normalized, part_type, signature_type
from wonder_server.core.errors import WonderError

HEADS = {
    "image/png": b"\x89PNG\r\n\x1a\n" + b"\0" * 20,
    "image/jpeg": b"\xff\xd8\xff\xe0" + b"\0" * 20,
    "image/gif": b"GIF89a" + b"\0" * 20,
    "image/webp": b"RIFF\x10\0\0\0WEBPVP8 ",
    "application/pdf": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n",
}
ACCEPTED = frozenset({*HEADS, "text/plain", "text/html", "application/json", "application/zip"})


def checked(content: bytes, declared: str = "", size: int = 7) -> str:
    check = TypeCheck(declared, ACCEPTED)
    for start in range(0, len(content), size):
        check.feed(content[start : start + size])
    return check.finish()


@pytest.mark.parametrize("media_type", HEADS)
def test_a_signature_shows_its_type_and_confirms_only_its_declaration(media_type: str) -> None:
    assert signature_type(HEADS[media_type]) == media_type
    assert checked(HEADS[media_type]) == checked(HEADS[media_type], media_type) == media_type
    for other in ACCEPTED - {media_type}:
        with pytest.raises(WonderError, match=f"declared type {other} is not that of the content"):
            checked(HEADS[media_type], other)


def test_a_type_with_a_signature_needs_it() -> None:
    with pytest.raises(WonderError, match="its beginning is not that of this type"):
        checked(b"no picture at all", "image/png")


def test_a_pdf_may_begin_after_white_space_and_a_text_may_mention_its_signature() -> None:
    assert checked(b"\xef\xbb\xbf\r\n%PDF-1.4 ...") == "application/pdf"
    assert checked(b"A file begins with %PDF-1.4.") == "text/plain"


@pytest.mark.parametrize("content", [b"a\x00b", b"caf\xe9", "é".encode()[:1]], ids=["nul", "latin", "cut"])
def test_a_text_is_utf_8_without_nul(content: bytes) -> None:
    with pytest.raises(WonderError, match="it is not UTF-8 text"):
        checked(content, "text/plain")
    with pytest.raises(WonderError, match="shows no type that the server knows"):
        checked(content)
    assert checked(content, "application/zip") == "application/zip"


def test_a_character_may_be_divided_between_pieces() -> None:
    assert checked("aé€😀".encode() * 400, size=1) == "text/plain"


@pytest.mark.parametrize("declared", ["image/svg+xml", "text/css"])
def test_a_type_outside_of_the_list_is_refused_before_the_content(declared: str) -> None:
    with pytest.raises(WonderError, match="accepts no files of the type"):
        TypeCheck(declared, ACCEPTED)


def test_the_type_that_is_found_must_be_in_the_list_too() -> None:
    check = TypeCheck("", frozenset({"text/plain"}))
    check.feed(HEADS["image/png"])
    with pytest.raises(WonderError, match="accepts no files of the type image/png"):
        check.finish()


def test_a_media_type_has_no_parameters_and_is_in_lower_case() -> None:
    assert normalized("Text/Plain; charset=utf-8") == "text/plain"
    for wrong in ("png", "image/", "image/a b", "a/b/c", "image/\n", "x" * 70 + "/y"):
        with pytest.raises(WonderError, match="is not a media type"):
            normalized(wrong)


def test_images_are_the_types_that_models_take() -> None:
    assert [part_type(each) for each in ("image/png", "image/svg+xml", "text/plain")] == [
        "image",
        "file",
        "file",
    ]
    assert is_text("application/json") and is_text("text/csv") and not is_text("application/pdf")
