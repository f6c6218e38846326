"""Talk to an agent until the budget of the conversation is used up. docs/models.md names the servers."""

import asyncio
import os
import sys

from wonder_sdk import Client, ResourceExhaustedError, WonderError, v1

AGENT = "flora"
MAX_TOKENS = 200


async def main() -> None:
    async with Client(os.environ.get("WONDER_SERVER", "127.0.0.1:50051")) as client:
        participants = [v1.Participant(agent=v1.AgentParticipant(agent_id=AGENT))]
        limited = v1.Conversation(participants=participants, budget=v1.Budget(max_tokens=MAX_TOKENS))
        request = v1.CreateConversationRequest(conversation=limited)
        created = (await client.conversations.create_conversation(request)).conversation
        assert created is not None
        async with client.converse(created.id) as chat:
            for text in ("One", "Two"):
                try:
                    print(await chat.send(text).text())
                except ResourceExhaustedError as problem:
                    assert problem.reason is not None
                    print(problem.reason.name, dict(sorted(problem.metadata.items())))


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except WonderError as problem:
        sys.exit(str(problem))
