"""Every part of a request format has the formats of the table in `core.request_formats`."""

from __future__ import annotations

import re

from tests.architecture.sources import SERVER
from wonder_server.adapters.models import formats
from wonder_server.core.conversation.context.dialects import DIALECTS
from wonder_server.core.request_formats import FORMATS


def test_dialects_and_wire_formats_are_those_of_the_table() -> None:
    assert list(DIALECTS) == list(FORMATS) == list(formats.FORMATS)


def test_the_standard_library_writes_every_format_of_the_table() -> None:
    source = (SERVER / "std/requests.yaml").read_text()
    written = re.findall(r'condition: input\.model_profile\.format == "(\w+)"', source)
    assert written == list(FORMATS)
    *names, last = FORMATS
    assert f"choose {', '.join(names)} or {last} in" in source


def test_only_the_declaration_names_a_format() -> None:
    names = re.compile(rf'"({"|".join(set(FORMATS) - {"gemini"})})"')
    found = [str(path.relative_to(SERVER)) for path in SERVER.rglob("*.py") if names.search(path.read_text())]
    assert sorted(found) == [f"core/request_formats/{name}.py" for name in sorted(set(FORMATS) - {"gemini"})]
