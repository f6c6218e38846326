"""Talk to an agent. Needs a server: `wonder serve`, or `make serve`."""

import asyncio
import os
import sys

from wonder_sdk import Client, TextDelta, WonderError, v1


async def main() -> None:
    async with Client(os.environ.get("WONDER_SERVER", "127.0.0.1:50051")) as client:
        for question in ("Remember that my cat is called Mia.", "What is my cat called?"):
            # Each question has its own conversation, so the answer comes from the agent's memory.
            conversation_id = await client.create_conversation(agent="assistant")
            async with client.converse(conversation_id) as chat:
                print(f"> {question}")
                async for event in chat.send(question):
                    match event:
                        case TextDelta(text=text):
                            print(text, end="", flush=True)
                        case v1.Event(tool_dispatched=v1.ToolDispatched(tool_call=v1.ToolCall() as call)):
                            print(f"[{call.tool_name}] ", end="")
                print()


try:
    asyncio.run(main())
except WonderError as problem:
    sys.exit(str(problem))
