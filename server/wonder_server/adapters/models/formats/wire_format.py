"""`WireFormat`: the declaration of one request format, as far as sending and reading need it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from wonder_server.adapters.models.formats.parts import Accumulator
from wonder_server.core.json_types import JsonDict
from wonder_server.core.model import ToolCall
from wonder_server.core.request_formats import RequestFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderApi:
    """The address of a provider's API, and the headers of each call.

    - ``base_url`` is the provider's own address; the operator may configure another.
    - ``version_path`` follows the address if the address does not end with a version.
    - ``query`` is added to the query of each call.
    - ``key_header`` is the header for the key, after ``key_prefix``.
    """

    base_url: str
    version_path: str = ""
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    key_header: str
    key_prefix: str = ""


def unchanged(request: JsonDict) -> JsonDict:
    """Return the request itself."""
    return request


@dataclass(frozen=True, slots=True, kw_only=True)
class WireFormat:
    """The functions and facts by which adapters send requests of one format and read the answers.

    - ``format`` is the part of the declaration that the core has.
    - ``accumulator()`` makes an `Accumulator` for one streamed answer.
    - ``message(text, calls)`` writes an answer as the model's own message in the next request.
    - ``path(model)`` is the path of a call. Raises MODEL_FAILED for a name that no address can hold.
    - ``stream_body(request, model)`` is the body of a streaming call.
    - ``with_defaults(request)`` adds the fields that the provider requires.
    - ``as_chat(request)`` converts a request to the fields of OpenAI chat, for the offline model. The
      offline model reads Anthropic's fields itself.
    """

    format: RequestFormat
    api: ProviderApi
    accumulator: Callable[[], Accumulator]
    message: Callable[[str, Iterable[ToolCall]], JsonDict]
    path: Callable[[str], str]
    stream_body: Callable[[JsonDict, str], JsonDict]
    with_defaults: Callable[[JsonDict], JsonDict] = unchanged
    as_chat: Callable[[JsonDict], JsonDict] = unchanged

    @property
    def name(self) -> str:
        return self.format.name
