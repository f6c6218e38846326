"""Notices of the platform in the requests of a turn, such as what others said in the conversation meanwhile.

A notice has the role of the user, so its first line says that the platform wrote it.
"""

from __future__ import annotations

from typing import Final

from wonder_server.core.content.parts import readable
from wonder_server.core.conversation.context.hook_inputs import speaker_of
from wonder_server.core.conversation.context.meanwhile import Said
from wonder_server.core.conversation.model.speakers import AGENT, author_key, caller_key, speakers_of
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import Message, Role, Turn
from wonder_server.core.request_formats.indentation import indent, with_newlines
from wonder_server.core.request_formats.neutral import ASIDE
from wonder_server.core.schema.truncation import truncate_text, utf8_size

MEANWHILE: Final = (
    "Said in this conversation while you worked on your task. These messages are not for you to answer now: "
    "other turns answer those that ask for an answer. Take from them what concerns your task, and go on with "
    "it."
)
MEANWHILE_BEFORE: Final = (
    "Said in this conversation while you worked on your task. Each of these messages has a turn of its own "
    "that answers it: take from them what concerns your task, and go on with it."
)
"""The words of turns whose rules are older than `RULES_OF_POSTED_MESSAGES`. They are untrue of a message that
was posted without a turn.
"""
RULES_OF_POSTED_MESSAGES: Final = 5
"""Version of `TURN_RULES` from which on the notice is true for messages without a turn, too."""
MESSAGE_BYTES: Final = 4 * 1024
"""Maximum size of a message in a notice; the rest is left out."""

NOTICE_BYTES: Final = 16 * 1024
"""Maximum size of the messages in a notice; the oldest are left out."""

RULES_OF_ASKERS: Final = 6
"""Version of `TURN_RULES` from which on notices about results name who asked."""
MAX_ASKERS: Final = 3


def askers(state: ConversationState, turn: Turn, through: int) -> str:
    """Return the labels of those whose messages up to the ordinal ``through`` the turn answers, the newest
    `MAX_ASKERS` of them; "" if only one party speaks with the agent."""
    if state.turn_work[turn.id].rules < RULES_OF_ASKERS or state.conversation is None:
        return ""
    own = state.messages.get(turn.id, ())
    messages = [each for each in own if each.role is Role.USER and each.ordinal <= through]
    keys = {author_key(message, turn) for message in messages}
    others = speakers_of(state.conversation.participants).others(turn.agent_id)
    if len(others | keys | {caller_key(turn.caller)} - {(AGENT, turn.agent_id)}) < 2:
        return ""
    labels = [str(speaker_of(state, message)["label"]) for message in messages]
    # A label without a name says nothing among several people.
    named = [label for label in dict.fromkeys(labels) if " " in label]
    return " and ".join(named[-MAX_ASKERS:])


def said_notice(state: ConversationState, turn: Turn, said: Said) -> str:
    """Return the notice about messages of other turns; "" for none."""
    shown: list[str] = []
    size = 0
    for message in reversed(said.messages):
        text = _labelled(state, turn, message)
        size += utf8_size(text)
        if shown and size > NOTICE_BYTES:
            break
        shown.append(text)
    left_out = said.missing + len(said.messages) - len(shown)
    if not shown and not left_out:
        return ""
    plural = "message is" if left_out == 1 else "messages are"
    omitted = [f"({left_out} older {plural} left out.)"] if left_out else []
    work = state.turn_work.get(turn.id)
    is_old = work is not None and work.rules < RULES_OF_POSTED_MESSAGES
    heading = MEANWHILE_BEFORE if is_old else MEANWHILE
    return "\n".join([ASIDE, "", heading, "", *omitted, *reversed(shown)])


def _labelled(state: ConversationState, turn: Turn, message: Message) -> str:
    """Return the message with its speaker's label. A space before further lines keeps a text from posing as
    another message.
    """
    label = f"[{speaker_of(state, message)['label']}] "
    if message.role is Role.AGENT and message.author == turn.agent_id:
        label += "(you, in another turn) "
    content = truncate_text(with_newlines(readable(message.content, message.parts)), MESSAGE_BYTES)
    return indent(content, " ", label)


def steering_text(state: ConversationState, turn: Turn, message: Message) -> str:
    """Return the text of such a message for the model. The label of another person than the turn's caller
    precedes it.
    """
    content = with_newlines(readable(message.content, message.parts))
    if message.author == turn.caller.user_id:
        return content
    return indent(content, " ", f"[{speaker_of(state, message)['label']}] ")
