"""Methods of the LibraryService for agents."""

from __future__ import annotations

from collections.abc import Sequence

from wonder.v1 import library_pb2
from wonder.v1 import library_service_pb2 as pb
from wonder_server.core.budget import Account
from wonder_server.core.definitions.resources import Agent
from wonder_server.ports.accounts import Accounts
from wonder_server.rpc.library import codec
from wonder_server.rpc.library.catalog_requests import catalog_key
from wonder_server.rpc.shared.call_context import CallContext
from wonder_server.rpc.shared.fields import required
from wonder_server.rpc.shared.pages import encode_page, page_request
from wonder_server.services.catalog.agents import Agents


class AgentMethods:
    """Methods of the LibraryServicer; see ``library_service.proto``."""

    def __init__(self, agents: Agents, accounts: Accounts | None) -> None:
        self._agents = agents
        self._accounts = accounts

    async def create_agent(
        self, request: pb.CreateAgentRequest, _context: CallContext
    ) -> pb.CreateAgentResponse:
        required(request.agent.name, "agent.name")
        agent = await self._agents.create(
            codec.agent_from_proto(request.agent),
            idempotency_key=catalog_key(request),
            validate_only=request.validate_only,
        )
        return pb.CreateAgentResponse(agent=await self._agent_to_proto(agent))

    async def get_agent(self, request: pb.GetAgentRequest, _context: CallContext) -> pb.GetAgentResponse:
        agent = await self._agents.agent(required(request.agent_id, "agent_id"))
        return pb.GetAgentResponse(agent=await self._agent_to_proto(agent, lenient=False))

    async def list_agents(
        self, request: pb.ListAgentsRequest, _context: CallContext
    ) -> pb.ListAgentsResponse:
        page = await self._agents.agents(page_request(request), project=request.project_id)
        accounts = await self._load_accounts(page.items)
        agents, token = await encode_page(
            page, lambda each: codec.agent_to_proto(each, accounts.get(each.id))
        )
        return pb.ListAgentsResponse(agents=agents, next_page_token=token)

    async def update_agent(
        self, request: pb.UpdateAgentRequest, _context: CallContext
    ) -> pb.UpdateAgentResponse:
        agent = await self._agents.update(
            required(request.agent.id, "agent.id"),
            codec.agent_edit(request.agent, request.update_mask),
            etag=request.agent.etag,
            idempotency_key=catalog_key(request),
            validate_only=request.validate_only,
        )
        return pb.UpdateAgentResponse(agent=await self._agent_to_proto(agent))

    async def delete_agent(
        self, request: pb.DeleteAgentRequest, _context: CallContext
    ) -> pb.DeleteAgentResponse:
        await self._agents.delete(
            required(request.agent_id, "agent_id"),
            etag=request.etag,
            idempotency_key=catalog_key(request),
        )
        return pb.DeleteAgentResponse()

    async def _agent_to_proto(self, agent: Agent, *, lenient: bool = True) -> library_pb2.Agent:
        return codec.agent_to_proto(
            agent, (await self._load_accounts([agent], lenient=lenient)).get(agent.id)
        )

    async def _load_accounts(self, agents: Sequence[Agent], *, lenient: bool = True) -> dict[str, Account]:
        """Return the account of each agent that has one.

        ``lenient`` omits a damaged account, so that lists and answers to changes do not fail because of it.
        """
        if self._accounts is None or not agents:
            return {}
        return await self._accounts.accounts([agent.id for agent in agents], lenient=lenient)
