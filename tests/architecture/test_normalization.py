"""Only `core.content.normal_text`, which takes linear time, calls the normalization of the library."""

from __future__ import annotations

from tests.architecture.sources import SERVER, calls, files, text


def test_only_one_module_calls_the_normalization_of_the_library() -> None:
    users = [
        str(path.relative_to(SERVER))
        for path in files(SERVER)
        if "normalize" in text(path)
        and any(name in ("normalize", "is_normalized") for name, _ in calls(path))
    ]
    assert users == ["core/content/normal_text.py"]
