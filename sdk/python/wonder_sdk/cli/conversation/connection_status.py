"""Notices about a lost connection while an answer is awaited."""

from __future__ import annotations

from collections.abc import Iterator

from wonder_sdk import Item, sync
from wonder_sdk.cli.shared.terminal import Terminal

# Shorter interruptions are not reported.
_NOTICE_AFTER_SECONDS = 1.0
_POLL_SECONDS = 0.25


class ConnectionStatus:
    """The items of a reply, with notices when the connection is lost and restored."""

    def __init__(self, chat: sync.Chat, terminal: Terminal, address: str) -> None:
        self._chat, self._terminal, self._address = chat, terminal, address
        self._is_disconnected = False

    def items(self, reply: sync.Reply) -> Iterator[Item]:
        """Yield items until the turn has ended. After an interrupt, call it again for the rest."""
        while True:
            while not reply.ready(within=_POLL_SECONDS):
                self._update()
            self._update()
            try:
                item = next(reply)
            except StopIteration:
                return
            yield item

    def _update(self) -> None:
        seconds = self._chat.disconnected_seconds
        if self._is_disconnected and not seconds:
            self._is_disconnected = False
            self._terminal.note("connected again")
        elif not self._is_disconnected and seconds >= _NOTICE_AFTER_SECONDS:
            self._is_disconnected = True
            self._terminal.note(f"no connection to {self._address}; reconnecting (Ctrl-C stops waiting)")
