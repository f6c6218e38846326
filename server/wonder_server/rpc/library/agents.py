"""Methods of the LibraryService for agents."""

from __future__ import annotations

from collections.abc import Sequence

from wonder.v1 import library_pb2
from wonder.v1 import library_service_pb2 as pb
from wonder_server.core.budget import Account
from wonder_server.core.definitions.resources import Agent
from wonder_server.ports.hook_failures import HookFailure
from wonder_server.rpc.library import codec
from wonder_server.rpc.library.parts import LibraryMethods
from wonder_server.rpc.shared.call_context import CallContext
from wonder_server.rpc.shared.fields import required
from wonder_server.rpc.shared.pages import encode_page, page_request
from wonder_server.rpc.shared.request_keys import audited_origin


class AgentMethods(LibraryMethods):
    """Methods of the LibraryServicer; see ``library_service.proto``."""

    async def create_agent(
        self, request: pb.CreateAgentRequest, context: CallContext
    ) -> pb.CreateAgentResponse:
        required(request.agent.name, "agent.name")
        agent = await self._own.library.agents.create(
            codec.agent_from_proto(request.agent),
            origin=audited_origin(request, "CreateAgent", context),
            validate_only=request.validate_only,
        )
        return pb.CreateAgentResponse(agent=await self._agent_to_proto(agent))

    async def get_agent(self, request: pb.GetAgentRequest, _context: CallContext) -> pb.GetAgentResponse:
        agent = await self._own.library.agents.agent(required(request.agent_id, "agent_id"))
        return pb.GetAgentResponse(agent=await self._agent_to_proto(agent, lenient=False))

    async def list_agents(
        self, request: pb.ListAgentsRequest, _context: CallContext
    ) -> pb.ListAgentsResponse:
        page = await self._own.library.agents.agents(page_request(request), project=request.project_id)
        accounts = await self._load_accounts(page.items)
        agents, token = await encode_page(
            page, lambda each: codec.agent_to_proto(each, accounts.get(each.id), self._failing_hooks(each))
        )
        return pb.ListAgentsResponse(agents=agents, next_page_token=token)

    async def update_agent(
        self, request: pb.UpdateAgentRequest, context: CallContext
    ) -> pb.UpdateAgentResponse:
        agent = await self._own.library.agents.update(
            required(request.agent.id, "agent.id"),
            codec.agent_edit(request.agent, request.update_mask),
            etag=request.agent.etag,
            origin=audited_origin(request, "UpdateAgent", context),
            validate_only=request.validate_only,
        )
        return pb.UpdateAgentResponse(agent=await self._agent_to_proto(agent))

    async def delete_agent(
        self, request: pb.DeleteAgentRequest, context: CallContext
    ) -> pb.DeleteAgentResponse:
        await self._own.library.agents.delete(
            required(request.agent_id, "agent_id"),
            etag=request.etag,
            origin=audited_origin(request, "DeleteAgent", context),
        )
        return pb.DeleteAgentResponse()

    async def _agent_to_proto(self, agent: Agent, *, lenient: bool = True) -> library_pb2.Agent:
        account = (await self._load_accounts([agent], lenient=lenient)).get(agent.id)
        return codec.agent_to_proto(agent, account, self._failing_hooks(agent))

    def _failing_hooks(self, agent: Agent) -> Sequence[HookFailure]:
        failed_hooks = self._own.failed_hooks
        return failed_hooks.of_agent(agent.id) if failed_hooks is not None else ()

    async def _load_accounts(self, agents: Sequence[Agent], *, lenient: bool = True) -> dict[str, Account]:
        """Return the account of each agent that has one.

        ``lenient`` omits a damaged account, so that lists and answers to changes do not fail because of it.
        """
        accounts = self._own.accounts
        if accounts is None or not agents:
            return {}
        return await accounts.accounts([agent.id for agent in agents], lenient=lenient)
