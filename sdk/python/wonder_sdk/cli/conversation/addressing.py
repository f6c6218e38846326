"""Names of a conversation's participants, and ``@name`` in messages."""

from __future__ import annotations

import re
from collections.abc import Sequence

from wonder_sdk import environment, v1

_ADDRESSED = re.compile(r"(?:^|\s)@([A-Za-z0-9_.-]+)")
"""A name as the server finds it in a message."""
_USER = "user"
"""User of conversations that are created without a name and a token."""


def agent_names(conversation: v1.Conversation) -> dict[str, str]:
    """Return the names of the agents of a conversation by their ids, in their order."""
    agents = [each.agent for each in conversation.participants if each.agent]
    return {agent.agent_id: agent.name or agent.agent_id for agent in agents}


def speaker(message: v1.Message, conversation: v1.Conversation, user: str) -> str:
    """Return the name of a message's author; ``you`` for ``user``, and for the only user."""
    if message.role is not v1.MessageRole.USER:
        return agent_names(conversation).get(message.author, "agent")
    others = {each.user.user_id for each in conversation.participants if each.user} - {message.author}
    is_other = message.author and (message.author != user if user else others)
    return message.author if is_other else "you"


def author(message: v1.Message, conversation: v1.Conversation) -> str:
    """Return the name of the agent, or the id of the user, who wrote a message."""
    if message.role is v1.MessageRole.USER:
        return message.author or _USER
    return agent_names(conversation).get(message.author, message.author or "agent")


def default_user(conversation: v1.Conversation) -> str:
    """Return the user that a message without one is from, where the server cannot know it; else "".

    With a token it is the token's name, and in a conversation with one user that user. With several, and the
    user of a conversation that the command created among them, it is that one.
    """
    users = {each.user.user_id for each in conversation.participants if each.user}
    return _USER if len(users) > 1 and _USER in users and not environment.token() else ""


def hint(text: str, conversation: v1.Conversation) -> str:
    """Return a hint if ``text`` addresses no agent of the conversation by an ``@name`` that it has; else "".

    With one agent, only a name at the beginning counts: an ``@`` elsewhere is then rarely an address.
    """
    addressed = [name.rstrip(".-_") for name in _ADDRESSED.findall(text)]
    names = list(agent_names(conversation).values())
    users = [each.user.user_id for each in conversation.participants if each.user]
    known = {*names, *users}
    if not addressed or not names or any(name in known for name in addressed):
        return ""
    if len(names) == 1 and not text.lstrip().startswith("@"):
        return ""
    return f"no agent here is called {addressed[0]}; {names[0]} answers. Agents: {_at(names)}"


def welcome(conversation: v1.Conversation) -> str:
    """Return how to address the agents of a conversation; "" with one agent."""
    names = list(agent_names(conversation).values())
    if len(names) < 2:
        return ""
    return f"{_at(names)}: write @NAME to choose who answers; {names[0]} does otherwise"


def _at(names: Sequence[str]) -> str:
    return ", ".join(f"@{name}" for name in names)
