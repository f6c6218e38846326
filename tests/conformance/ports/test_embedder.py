"""Embedders: unit vectors, the same each time, near each other for similar texts."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wonder_server.adapters.embedders import hashing
from wonder_server.adapters.embedders.batched import BatchedEmbedder
from wonder_server.adapters.embedders.hashing import HashingEmbedder
from wonder_server.ports.embedder import Embedder

EMBEDDERS = [HashingEmbedder(), HashingEmbedder(512), BatchedEmbedder(HashingEmbedder(256))]
SENTENCE = "We deploy the billing service on Fridays, never on Mondays."


@pytest.fixture(params=EMBEDDERS, ids=lambda embedder: embedder.name)
def embedder(request: pytest.FixtureRequest) -> Embedder:
    chosen: Embedder = request.param
    return chosen


def cosine(left: bytes, right: bytes) -> float:
    return sum(map(float.__mul__, array("f", left), array("f", right)))


async def test_one_unit_vector_of_the_promised_size_for_each_text(embedder: Embedder) -> None:
    vectors = await embedder.embed([SENTENCE, "Anna likes tea", "日本語のテキスト", "long " * 5000])
    assert [len(vector) for vector in vectors] == [4 * embedder.dimensions] * 4
    for vector in vectors:
        assert cosine(vector, vector) == pytest.approx(1.0, abs=1e-5)


async def test_no_texts_give_no_vectors(embedder: Embedder) -> None:
    assert await embedder.embed([]) == []


async def test_a_text_without_words_is_near_to_nothing(embedder: Embedder) -> None:
    [blank, other] = await embedder.embed(["?! \x00", SENTENCE])
    assert abs(cosine(blank, other)) < 0.1


async def test_a_text_gets_the_same_vector_alone_and_in_a_batch(embedder: Embedder) -> None:
    [alone] = await embedder.embed([SENTENCE])
    assert (await embedder.embed(["other", SENTENCE]))[1] == alone


async def test_texts_with_shared_words_or_letters_are_nearer_than_others(embedder: Embedder) -> None:
    base, same_words, misspelt, other = await embedder.embed(
        [
            SENTENCE,
            "billing service: deploy on Fridays",
            "deploying the biling servce",
            "Anna prefers green tea in the garden",
        ]
    )
    assert cosine(base, same_words) > 0.5
    assert cosine(base, misspelt) > cosine(base, other) + 0.1


async def test_case_and_unicode_spelling_make_no_difference(embedder: Embedder) -> None:
    left, right = await embedder.embed(["CAFÉ Société", "cafe\u0301 socie\u0301te\u0301"])
    assert cosine(left, right) == pytest.approx(1.0, abs=1e-5)


@given(words=st.lists(st.text(max_size=12) | st.sampled_from(["the", "tea", "teas"]), max_size=30))
def test_the_hashing_embedder_gives_few_words_the_vector_that_it_gives_to_many(words: list[str]) -> None:
    text = " ".join(words)
    with pytest.MonkeyPatch.context() as patch:
        vectors = []
        for few in (0, 1_000):
            patch.setattr(hashing, "_SHORT_TEXT_WORDS", few)
            vectors += asyncio.run(HashingEmbedder().embed([text]))
    assert vectors[0] == vectors[1]


async def test_the_hashing_embedder_gives_the_same_vectors_in_every_process() -> None:
    [vector] = await HashingEmbedder().embed([SENTENCE])
    program = (
        "import asyncio, hashlib; from wonder_server.adapters.embedders.hashing import HashingEmbedder;"
        f"[v] = asyncio.run(HashingEmbedder().embed([{SENTENCE!r}]));"
        "print(hashlib.sha256(v).hexdigest())"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "7"}
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=subprocess.PIPE, env=environment
    )
    printed, _ = await other.communicate()
    assert printed.decode().strip() == hashlib.sha256(vector).hexdigest()
