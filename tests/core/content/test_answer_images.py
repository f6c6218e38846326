"""Answers with images: places, parts and words."""

from __future__ import annotations

from wonder_server.core.content.answer_images import (
    AnswerImage,
    answer_parts,
    described,
    file_of,
    stand_ins_of,
    with_stand_ins,
)
from wonder_server.core.content.parts import ContentPart, Parts, with_texts


def image(number: int, position: int) -> AnswerImage:
    return AnswerImage(number=number, data="AAAA", media_type="image/png", position=position)


STORED = ContentPart(type="image", file_id="file_1", media_type="image/png", name="image-1.png", size_bytes=3)


def shown(text: str, parts: Parts) -> list[str]:
    return [each or part.type for part, each in with_texts(text, parts)]


def test_parts_follow_the_positions_of_the_images() -> None:
    cases = {
        ("a\nb", 1): ["a", "image", "b"],
        ("a", 1): ["a", "image"],
        ("a", 0): ["image", "a"],
        ("", 0): ["image"],
        ("cut", 900): ["cut", "image"],
    }
    for (text, position), expected in cases.items():
        assert shown(text, answer_parts(text, [image(1, position)], [STORED])) == expected
    two = answer_parts("a\nb", [image(1, 1), image(2, 1)], [STORED, STORED])
    assert shown("a\nb", two) == ["a", "image", "image", "b"]


def test_an_image_that_is_not_stored_is_words() -> None:
    images, stored = [image(1, 1), image(2, 1)], [STORED, "The disk is full."]
    stand_ins = stand_ins_of([file_of(each, part) for each, part in zip(images, stored, strict=True)])
    assert stand_ins == "[image: image-2.png, image/png, 3 bytes; not stored: The disk is full.]"
    text = with_stand_ins("a\nb", stand_ins)
    assert shown(text, answer_parts(text, images, stored)) == ["a", "image", f"b\n{stand_ins}"]
    assert answer_parts(text, images, ["No.", "No."]) == ()
    assert with_stand_ins("", stand_ins) == stand_ins and with_stand_ins("a", "") == "a"


def test_only_places_of_images_are_described() -> None:
    place = {"wonder_file": {"image": 1}, "thoughtSignature": "s"}
    other = [{"text": "a"}, {"wonder_file": {"image": 2}}, {"wonder_file": {"image": True}}, "x", None]
    raw = described({"role": "model", "parts": [place, *other]}, [{"file_id": "file_1"}])
    assert raw["parts"] == [{"wonder_file": {"file_id": "file_1"}, "thoughtSignature": "s"}, *other]
    assert described({"content": "a"}, [{}]) == {"content": "a"}
