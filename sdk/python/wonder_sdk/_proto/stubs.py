"""Stubs of all services over the SDK's channel, with betterproto2 messages."""

# Generated from proto/ by tools/gen.py. Do not edit.

from __future__ import annotations

import grpc.aio

from ..transport.channel import TypedChannel
from ..transport.encoding import Encoder
from .wonder import v1


class BackupServiceStub:
    """Backups of everything that the server stores, while it serves. Errors are listed without the
    prefix `ERROR_REASON_`.
    """

    def __init__(self, channel: TypedChannel) -> None:
        self.create_backup: grpc.aio.UnaryStreamMultiCallable[
            v1.CreateBackupRequest, v1.CreateBackupResponse
        ] = channel.unary_stream(
            "/wonder.v1.BackupService/CreateBackup",
            Encoder(v1.CreateBackupRequest),
            v1.CreateBackupResponse.FromString,
        )
        """Makes a backup in a folder of the server's machine, `<backup_dir>/<name>`. `backup_dir` is a
        setting, so that no client can name a path. The backup contains all databases as they were at
        one instant, and everything that they refer to. The server works meanwhile. A backup that is
        repeated under its name copies only what is new, and replaces the earlier one when it is
        complete. A call that ends early makes no backup; the earlier one stays.

        Objects in a bucket are not in the backup. Errors: FIELD_INVALID for the name; NOT_IMPLEMENTED
        without the setting `backup_dir`; RESOURCE_IN_USE while another backup is made;
        STORAGE_UNAVAILABLE if the folder cannot be written, is full or has other contents.
        """


class ConversationServiceStub:
    """Conversations, and the agent loop that runs in them.

    Paging, `request_id`, `etag` and `validate_only` follow the rules in the comment of
    LibraryService.
    """

    def __init__(self, channel: TypedChannel) -> None:
        self.create_conversation: grpc.aio.UnaryUnaryMultiCallable[
            v1.CreateConversationRequest, v1.CreateConversationResponse
        ] = channel.unary_unary(
            "/wonder.v1.ConversationService/CreateConversation",
            Encoder(v1.CreateConversationRequest),
            v1.CreateConversationResponse.FromString,
        )
        """Creates a conversation. A repeated request returns the conversation that the first one created,
        also if one of its agents was deleted since. If that conversation was deleted, it fails with
        CONVERSATION_NOT_FOUND: a request creates at most one conversation. An expired conversation
        gives its `external_ref` up to a new one. Its record stays, in the archive or until the server
        archives it. With `messages`, the conversation has a history from the start: it is there with
        all of them, or not at all. Errors: ALREADY_EXISTS if the `external_ref` is in use,
        PROJECT_NOT_FOUND, AGENT_NOT_FOUND, FIELD_INVALID, CONVERSATION_NOT_FOUND; with `messages` also
        LIMIT_EXCEEDED, PAYLOAD_TOO_LARGE, NO_AGENT, FILE_NOT_FOUND, PERMISSION_DENIED.
        """
        self.fork_conversation: grpc.aio.UnaryUnaryMultiCallable[
            v1.ForkConversationRequest, v1.ForkConversationResponse
        ] = channel.unary_unary(
            "/wonder.v1.ConversationService/ForkConversation",
            Encoder(v1.ForkConversationRequest),
            v1.ForkConversationResponse.FromString,
        )
        """Makes a new conversation with the beginning of another one: a branch of it, an edit of a message
        (fork before it, with the new text as `send`), or another answer (`regenerate`). Agents see the
        same history as in the source, byte for byte, up to the last copied message.

        The fork has copies of its own of the source's messages, turns, and tool calls with their
        results, with their times; ids are new. Files are shared, as between any messages of a project.
        Of the source it has its title, participants, metadata, budget, interval of expiry, policy for
        concurrent turns and its last reset; its summary only if that covers copied messages alone. It
        has no usage of its own yet: copied turns and moves have none. Not copied: `external_ref`,
        active work (a turn that is active has what it has so far, and no agent continues it), gates,
        moves of turns without tool calls, raw answers of models, runs, turns of called agents, the
        branch of a repository and its files. Messages of the fork start with events of their own.

        The source does not change, may be active, completed or archived (then it is restored), and may
        be deleted later. A fork is there as a whole, or not at all. A repeated request returns the
        first fork. Errors: those of CreateConversation; CONVERSATION_NOT_FOUND; MESSAGE_NOT_FOUND for a
        message that is not in the source; with `send` and `regenerate` those of SendMessage.
        """
        self.get_conversation: grpc.aio.UnaryUnaryMultiCallable[
            v1.GetConversationRequest, v1.GetConversationResponse
        ] = channel.unary_unary(
            "/wonder.v1.ConversationService/GetConversation",
            Encoder(v1.GetConversationRequest),
            v1.GetConversationResponse.FromString,
        )
        """Reads a conversation by id or by `external_ref`. Errors: CONVERSATION_NOT_FOUND."""
        self.list_conversations: grpc.aio.UnaryUnaryMultiCallable[
            v1.ListConversationsRequest, v1.ListConversationsResponse
        ] = channel.unary_unary(
            "/wonder.v1.ConversationService/ListConversations",
            Encoder(v1.ListConversationsRequest),
            v1.ListConversationsResponse.FromString,
        )
        """Lists conversations. The list includes archived conversations only with `include_archived`, and
        does not restore them. Errors: PAGE_TOKEN_INVALID.
        """
        self.update_conversation: grpc.aio.UnaryUnaryMultiCallable[
            v1.UpdateConversationRequest, v1.UpdateConversationResponse
        ] = channel.unary_unary(
            "/wonder.v1.ConversationService/UpdateConversation",
            Encoder(v1.UpdateConversationRequest),
            v1.UpdateConversationResponse.FromString,
        )
        """Updates a conversation. Errors: CONVERSATION_NOT_FOUND, ETAG_MISMATCH, FIELD_MASK_UNSUPPORTED."""
        self.delete_conversation: grpc.aio.UnaryUnaryMultiCallable[
            v1.DeleteConversationRequest, v1.DeleteConversationResponse
        ] = channel.unary_unary(
            "/wonder.v1.ConversationService/DeleteConversation",
            Encoder(v1.DeleteConversationRequest),
            v1.DeleteConversationResponse.FromString,
        )
        """Deletes a conversation with its turns, messages, moves, events and branch. Memories of agents
        remain. The server cancels active turns and ends attached streams. Errors:
        CONVERSATION_NOT_FOUND, ETAG_MISMATCH.
        """
        self.complete_conversation: grpc.aio.UnaryUnaryMultiCallable[
            v1.CompleteConversationRequest, v1.CompleteConversationResponse
        ] = channel.unary_unary(
            "/wonder.v1.ConversationService/CompleteConversation",
            Encoder(v1.CompleteConversationRequest),
            v1.CompleteConversationResponse.FromString,
        )
        """Completes a conversation. It accepts no messages until it is reopened. Errors:
        CONVERSATION_NOT_FOUND, ETAG_MISMATCH, CONVERSATION_NOT_ACTIVE, RESOURCE_IN_USE while turns are
        active unless `cancel_turns` is set.
        """
        self.reopen_conversation: grpc.aio.UnaryUnaryMultiCallable[
            v1.ReopenConversationRequest, v1.ReopenConversationResponse
        ] = channel.unary_unary(
            "/wonder.v1.ConversationService/ReopenConversation",
            Encoder(v1.ReopenConversationRequest),
            v1.ReopenConversationResponse.FromString,
        )
        """Reopens a completed conversation. An open conversation stays unchanged. Errors:
        CONVERSATION_NOT_FOUND, ETAG_MISMATCH.
        """
        self.reset_conversation: grpc.aio.UnaryUnaryMultiCallable[
            v1.ResetConversationRequest, v1.ResetConversationResponse
        ] = channel.unary_unary(
            "/wonder.v1.ConversationService/ResetConversation",
            Encoder(v1.ResetConversationRequest),
            v1.ResetConversationResponse.FromString,
        )
        """Resets a conversation: agents no longer see earlier turns. The record stays. Errors:
        CONVERSATION_NOT_FOUND, ETAG_MISMATCH, RESOURCE_IN_USE while turns are active.
        """
        self.add_participant: grpc.aio.UnaryUnaryMultiCallable[
            v1.AddParticipantRequest, v1.AddParticipantResponse
        ] = channel.unary_unary(
            "/wonder.v1.ConversationService/AddParticipant",
            Encoder(v1.AddParticipantRequest),
            v1.AddParticipantResponse.FromString,
        )
        """Adds a user or an agent. An existing participant stays unchanged. Errors:
        CONVERSATION_NOT_FOUND, AGENT_NOT_FOUND, CONVERSATION_NOT_ACTIVE, LIMIT_EXCEEDED.
        """
        self.remove_participant: grpc.aio.UnaryUnaryMultiCallable[
            v1.RemoveParticipantRequest, v1.RemoveParticipantResponse
        ] = channel.unary_unary(
            "/wonder.v1.ConversationService/RemoveParticipant",
            Encoder(v1.RemoveParticipantRequest),
            v1.RemoveParticipantResponse.FromString,
        )
        """Removes a user or an agent. The removed participant no longer sees the conversation, and the
        server cancels the active turns of a removed agent. Removing a user or agent that is not a
        participant is not an error. Errors: CONVERSATION_NOT_FOUND.
        """
        self.converse: grpc.aio.StreamStreamMultiCallable[v1.ConverseRequest, v1.ConverseResponse] = (
            channel.stream_stream(
                "/wonder.v1.ConversationService/Converse",
                Encoder(v1.ConverseRequest),
                v1.ConverseResponse.FromString,
            )
        )
        """Opens a stream in both directions for one conversation: messages to the server, events and text
        to the client.

        The client attaches first. The server answers with `attached`. It then sends every event after
        the client's cursor, the text so far of messages that are being streamed, and new events and
        text as they happen. Any number of clients may attach to one conversation; all receive the same.
        A client that disconnects cancels nothing. It attaches again with the sequence of the last event
        that it has seen, and receives each later event exactly once.

        The stream continues when the client half-closes it. It ends with `end` after `detach` or when
        the server drains, or with a status: CONVERSATION_NOT_FOUND, CURSOR_OUT_OF_RANGE, NOT_ATTACHED,
        SLOW_READER, MALFORMED_REQUEST. The server reports an error of one `send` or `cancel` as
        `refused`, and the stream continues.
        """
        self.send_message: grpc.aio.UnaryUnaryMultiCallable[v1.SendMessageRequest, v1.SendMessageResponse] = (
            channel.unary_unary(
                "/wonder.v1.ConversationService/SendMessage",
                Encoder(v1.SendMessageRequest),
                v1.SendMessageResponse.FromString,
            )
        )
        """Sends a message and starts a turn. The method does not wait for the answer. Errors:
        CONVERSATION_NOT_FOUND, CONVERSATION_NOT_ACTIVE, NO_AGENT, AGENT_NOT_FOUND, MESSAGE_NOT_FOUND,
        PAYLOAD_TOO_LARGE, BUDGET_EXHAUSTED, LIMIT_EXCEEDED, SERVER_DRAINING.
        """
        self.subscribe: grpc.aio.UnaryStreamMultiCallable[v1.SubscribeRequest, v1.SubscribeResponse] = (
            channel.unary_stream(
                "/wonder.v1.ConversationService/Subscribe",
                Encoder(v1.SubscribeRequest),
                v1.SubscribeResponse.FromString,
            )
        )
        """Streams a conversation to a client that only reads: the responses of Converse without its
        requests. Errors: CONVERSATION_NOT_FOUND, CURSOR_OUT_OF_RANGE, SLOW_READER.
        """
        self.stream_turn: grpc.aio.UnaryStreamMultiCallable[v1.StreamTurnRequest, v1.StreamTurnResponse] = (
            channel.unary_stream(
                "/wonder.v1.ConversationService/StreamTurn",
                Encoder(v1.StreamTurnRequest),
                v1.StreamTurnResponse.FromString,
            )
        )
        """Sends a message, and streams its turn until the turn has ended: first `accepted`, then the
        events and deltas of the turn, last the ended `turn`. The stream has no other turns, and ends
        before memory extraction. A failed or cancelled turn is not an error of the call.

        A call with the same `send.request_id`, target and message starts nothing: it streams the same
        turn after `after_sequence`, while the turn is active and later, also after a restart of the
        server. With other content it fails with REQUEST_ID_REUSED. A stream that cannot continue ends
        with a status and no `turn`: SERVER_DRAINING, OWNER_MOVED and SLOW_READER can be resumed; the
        metadata `resume_after_sequence` of their ErrorInfo is the cursor. CONVERSATION_NOT_FOUND: the
        conversation was deleted.

        Errors: those of SendMessage; with `new_conversation` those of CreateConversation;
        FIELD_INVALID, CURSOR_OUT_OF_RANGE. A message that is refused creates no conversation.
        """
        self.call_agent: grpc.aio.UnaryUnaryMultiCallable[v1.CallAgentRequest, v1.CallAgentResponse] = (
            channel.unary_unary(
                "/wonder.v1.ConversationService/CallAgent",
                Encoder(v1.CallAgentRequest),
                v1.CallAgentResponse.FromString,
            )
        )
        """Calls an agent for one turn and waits for its output, in the same way as a node of a workflow or
        another agent. A failed turn is not an error of the call: the response has its `error`. If the
        caller disconnects, the server cancels the turn, unless the request has a `request_id` with
        which the caller can repeat it. Errors: AGENT_NOT_FOUND, CONVERSATION_NOT_FOUND, INPUT_INVALID,
        LIMIT_EXCEEDED, SERVER_DRAINING.
        """
        self.cancel_turn: grpc.aio.UnaryUnaryMultiCallable[v1.CancelTurnRequest, v1.CancelTurnResponse] = (
            channel.unary_unary(
                "/wonder.v1.ConversationService/CancelTurn",
                Encoder(v1.CancelTurnRequest),
                v1.CancelTurnResponse.FromString,
            )
        )
        """Cancels a turn with its model call, tools and delegated turns. Returns after the turn is
        cancelled. Errors: TURN_NOT_FOUND under the conditions of GetTurn, TURN_NOT_ACTIVE.
        """
        self.get_turn: grpc.aio.UnaryUnaryMultiCallable[v1.GetTurnRequest, v1.GetTurnResponse] = (
            channel.unary_unary(
                "/wonder.v1.ConversationService/GetTurn",
                Encoder(v1.GetTurnRequest),
                v1.GetTurnResponse.FromString,
            )
        )
        """Reads a turn. A `conversation_id` restores an archived conversation. Errors: TURN_NOT_FOUND,
        also for a turn of an archived conversation if `conversation_id` is empty.
        """
        self.list_turns: grpc.aio.UnaryUnaryMultiCallable[v1.ListTurnsRequest, v1.ListTurnsResponse] = (
            channel.unary_unary(
                "/wonder.v1.ConversationService/ListTurns",
                Encoder(v1.ListTurnsRequest),
                v1.ListTurnsResponse.FromString,
            )
        )
        """Lists the turns of one conversation, restoring it if it is archived, or of all conversations
        that are not archived. Errors: CONVERSATION_NOT_FOUND, PAGE_TOKEN_INVALID.
        """
        self.list_messages: grpc.aio.UnaryUnaryMultiCallable[
            v1.ListMessagesRequest, v1.ListMessagesResponse
        ] = channel.unary_unary(
            "/wonder.v1.ConversationService/ListMessages",
            Encoder(v1.ListMessagesRequest),
            v1.ListMessagesResponse.FromString,
        )
        """Lists the messages of one conversation, restoring it if it is archived, or of all conversations
        that are not archived. For a turn in an archived conversation the list is empty. Errors:
        CONVERSATION_NOT_FOUND, PAGE_TOKEN_INVALID.
        """
        self.search_messages: grpc.aio.UnaryUnaryMultiCallable[
            v1.SearchMessagesRequest, v1.SearchMessagesResponse
        ] = channel.unary_unary(
            "/wonder.v1.ConversationService/SearchMessages",
            Encoder(v1.SearchMessagesRequest),
            v1.SearchMessagesResponse.FromString,
        )
        """Finds messages that contain words: of one conversation, restoring it if it is archived, or of
        all conversations that are not archived. Messages before a reset are found too. The server reads
        messages from the newest on, without an index; one call reads at most 20,000 in each of its
        stores. A page with fewer matches than `page_size`, or none, is the last one only if
        `next_page_token` is empty. Errors: FIELD_INVALID for a query without words,
        CONVERSATION_NOT_FOUND, AGENT_NOT_FOUND, PROJECT_NOT_FOUND, PAGE_TOKEN_INVALID.
        """
        self.list_moves: grpc.aio.UnaryUnaryMultiCallable[v1.ListMovesRequest, v1.ListMovesResponse] = (
            channel.unary_unary(
                "/wonder.v1.ConversationService/ListMoves",
                Encoder(v1.ListMovesRequest),
                v1.ListMovesResponse.FromString,
            )
        )
        """Lists the moves of a turn, of a conversation or of all conversations, with the models' raw
        answers. A `conversation_id` restores an archived conversation. Without it, archived
        conversations are omitted, and a turn in an archived conversation is TURN_NOT_FOUND. Errors:
        CONVERSATION_NOT_FOUND, TURN_NOT_FOUND, PAGE_TOKEN_INVALID.
        """
        self.list_events: grpc.aio.UnaryUnaryMultiCallable[v1.ListEventsRequest, v1.ListEventsResponse] = (
            channel.unary_unary(
                "/wonder.v1.ConversationService/ListEvents",
                Encoder(v1.ListEventsRequest),
                v1.ListEventsResponse.FromString,
            )
        )
        """Lists the events of one conversation, oldest first, restoring it if it is archived; or of all
        conversations that are not archived, newest first. Errors: CONVERSATION_NOT_FOUND,
        CURSOR_OUT_OF_RANGE, PAGE_TOKEN_INVALID.
        """
        self.list_decisions: grpc.aio.UnaryUnaryMultiCallable[
            v1.ListDecisionsRequest, v1.ListDecisionsResponse
        ] = channel.unary_unary(
            "/wonder.v1.ConversationService/ListDecisions",
            Encoder(v1.ListDecisionsRequest),
            v1.ListDecisionsResponse.FromString,
        )
        """Lists the recorded decisions of a turn or of a conversation, oldest first. A `conversation_id`
        restores an archived conversation; without it, a turn in an archived conversation is
        TURN_NOT_FOUND. One call reads at most 500 entries of the journal: a page with fewer decisions
        than `page_size`, or none, is the last one only if `next_page_token` is empty. Errors:
        FIELD_INVALID for a type that does not exist, CONVERSATION_NOT_FOUND, TURN_NOT_FOUND,
        PAGE_TOKEN_INVALID.
        """
        self.read_message: grpc.aio.UnaryStreamMultiCallable[
            v1.ReadMessageRequest, v1.ReadMessageResponse
        ] = channel.unary_stream(
            "/wonder.v1.ConversationService/ReadMessage",
            Encoder(v1.ReadMessageRequest),
            v1.ReadMessageResponse.FromString,
        )
        """Streams the complete text of a message in pieces, as the model or the user wrote it. It serves
        messages whose `content` was truncated. Errors: CONVERSATION_NOT_FOUND, MESSAGE_NOT_FOUND.
        """
        self.preview_context: grpc.aio.UnaryUnaryMultiCallable[
            v1.PreviewContextRequest, v1.PreviewContextResponse
        ] = channel.unary_unary(
            "/wonder.v1.ConversationService/PreviewContext",
            Encoder(v1.PreviewContextRequest),
            v1.PreviewContextResponse.FromString,
        )
        """Returns the request to the model that this message would lead to now, and the source of each
        part. The server executes the context-assembly workflow and records nothing. It asks no model
        for a summary: with `strategy: summarize` the request omits older messages instead. Errors:
        CONVERSATION_NOT_FOUND, NO_AGENT, AGENT_NOT_FOUND, CONTEXT_ASSEMBLY_FAILED.
        """
        self.diff_branch: grpc.aio.UnaryUnaryMultiCallable[v1.DiffBranchRequest, v1.DiffBranchResponse] = (
            channel.unary_unary(
                "/wonder.v1.ConversationService/DiffBranch",
                Encoder(v1.DiffBranchRequest),
                v1.DiffBranchResponse.FromString,
            )
        )
        """Returns the changes of a conversation on its branch of a repository. Errors:
        CONVERSATION_NOT_FOUND, FIELD_INVALID, STORAGE_UNAVAILABLE while the repository cannot be
        reached or is still being copied.
        """
        self.merge_branch: grpc.aio.UnaryUnaryMultiCallable[v1.MergeBranchRequest, v1.MergeBranchResponse] = (
            channel.unary_unary(
                "/wonder.v1.ConversationService/MergeBranch",
                Encoder(v1.MergeBranchRequest),
                v1.MergeBranchResponse.FromString,
            )
        )
        """Merges the branch of a conversation, including uncommitted work. A conflict is not an error: the
        response lists the conflicts, and the server merges nothing. Errors: CONVERSATION_NOT_FOUND,
        FIELD_INVALID, ETAG_MISMATCH, STORAGE_UNAVAILABLE, RESOURCE_IN_USE if the repository rejects the
        merge.
        """


class CoordinatorServiceStub:
    """Runs of workflows. A run is durable: after a crash it continues from its last recorded decision.

    Paging, `request_id`, `etag` and `validate_only` follow the rules in the comment of
    LibraryService.
    """

    def __init__(self, channel: TypedChannel) -> None:
        self.start_run: grpc.aio.UnaryUnaryMultiCallable[v1.StartRunRequest, v1.StartRunResponse] = (
            channel.unary_unary(
                "/wonder.v1.CoordinatorService/StartRun",
                Encoder(v1.StartRunRequest),
                v1.StartRunResponse.FromString,
            )
        )
        """Starts a run. The method waits for the end of the run only if `wait_ms` is set. Errors:
        DEFINITION_NOT_FOUND, INPUT_INVALID, PROJECT_NOT_FOUND, AGENT_NOT_FOUND, CONVERSATION_NOT_FOUND,
        LIMIT_EXCEEDED, SERVER_DRAINING.
        """
        self.get_run: grpc.aio.UnaryUnaryMultiCallable[v1.GetRunRequest, v1.GetRunResponse] = (
            channel.unary_unary(
                "/wonder.v1.CoordinatorService/GetRun",
                Encoder(v1.GetRunRequest),
                v1.GetRunResponse.FromString,
            )
        )
        """Reads a run. Errors: RUN_NOT_FOUND. Each method that names a run also fails with RUN_NOT_FOUND
        for a run of an archived conversation, until a request restores the conversation, such as
        ListRuns with its `conversation_id`.
        """
        self.list_runs: grpc.aio.UnaryUnaryMultiCallable[v1.ListRunsRequest, v1.ListRunsResponse] = (
            channel.unary_unary(
                "/wonder.v1.CoordinatorService/ListRuns",
                Encoder(v1.ListRunsRequest),
                v1.ListRunsResponse.FromString,
            )
        )
        """Lists the runs of one conversation, restoring it if it is archived, or all runs except those of
        archived conversations. Errors: DEFINITION_NOT_FOUND, PAGE_TOKEN_INVALID.
        """
        self.cancel_run: grpc.aio.UnaryUnaryMultiCallable[v1.CancelRunRequest, v1.CancelRunResponse] = (
            channel.unary_unary(
                "/wonder.v1.CoordinatorService/CancelRun",
                Encoder(v1.CancelRunRequest),
                v1.CancelRunResponse.FromString,
            )
        )
        """Cancels a run with its tasks, child runs, gates and agent turns. Returns after the run is
        cancelled. Errors: RUN_NOT_FOUND, RUN_NOT_ACTIVE.
        """
        self.signal_run: grpc.aio.UnaryUnaryMultiCallable[v1.SignalRunRequest, v1.SignalRunResponse] = (
            channel.unary_unary(
                "/wonder.v1.CoordinatorService/SignalRun",
                Encoder(v1.SignalRunRequest),
                v1.SignalRunResponse.FromString,
            )
        )
        """Sends a signal to a run. Expressions read the newest signal of each name as `signals.<name>`.
        The signal ends the pause of nodes that wait for it. Errors: RUN_NOT_FOUND, RUN_NOT_ACTIVE.
        """
        self.watch_run: grpc.aio.UnaryStreamMultiCallable[v1.WatchRunRequest, v1.WatchRunResponse] = (
            channel.unary_stream(
                "/wonder.v1.CoordinatorService/WatchRun",
                Encoder(v1.WatchRunRequest),
                v1.WatchRunResponse.FromString,
            )
        )
        """Streams the events of a run: first those after a cursor, then new events as they happen. The
        stream ends with `end` after the last event of the run. Errors: RUN_NOT_FOUND,
        CURSOR_OUT_OF_RANGE, SLOW_READER.
        """
        self.list_gates: grpc.aio.UnaryUnaryMultiCallable[v1.ListGatesRequest, v1.ListGatesResponse] = (
            channel.unary_unary(
                "/wonder.v1.CoordinatorService/ListGates",
                Encoder(v1.ListGatesRequest),
                v1.ListGatesResponse.FromString,
            )
        )
        """Lists gates of runs and of tool calls, oldest first. Errors: RUN_NOT_FOUND,
        CONVERSATION_NOT_FOUND, PROJECT_NOT_FOUND, PAGE_TOKEN_INVALID.
        """
        self.resolve_gate: grpc.aio.UnaryUnaryMultiCallable[v1.ResolveGateRequest, v1.ResolveGateResponse] = (
            channel.unary_unary(
                "/wonder.v1.CoordinatorService/ResolveGate",
                Encoder(v1.ResolveGateRequest),
                v1.ResolveGateResponse.FromString,
            )
        )
        """Approves or rejects at a gate, with edited input if the gate accepts it. Errors: GATE_NOT_FOUND,
        GATE_RESOLVED, INPUT_INVALID, PERMISSION_DENIED.
        """
        self.replay_run: grpc.aio.UnaryUnaryMultiCallable[v1.ReplayRunRequest, v1.ReplayRunResponse] = (
            channel.unary_unary(
                "/wonder.v1.CoordinatorService/ReplayRun",
                Encoder(v1.ReplayRunRequest),
                v1.ReplayRunResponse.FromString,
            )
        )
        """Replays a run: feeds its recorded inputs to the current planner and compares the decisions with
        the recorded ones. The method changes nothing. Errors: RUN_NOT_FOUND.
        """
        self.fork_run: grpc.aio.UnaryUnaryMultiCallable[v1.ForkRunRequest, v1.ForkRunResponse] = (
            channel.unary_unary(
                "/wonder.v1.CoordinatorService/ForkRun",
                Encoder(v1.ForkRunRequest),
                v1.ForkRunResponse.FromString,
            )
        )
        """Starts a new run from a point in another run's journal. The new run takes over the record up to
        that point and continues from there. Errors: RUN_NOT_FOUND, CURSOR_OUT_OF_RANGE, INPUT_INVALID,
        DEFINITION_NOT_FOUND.
        """


class ExecutorServiceStub:
    """Tasks and workers. A task executes a list of steps as one unit and stores nothing. A worker
    executes its own kinds of action.

    Paging and `request_id` follow the rules in the comment of LibraryService.
    """

    def __init__(self, channel: TypedChannel) -> None:
        self.execute_task: grpc.aio.UnaryUnaryMultiCallable[v1.ExecuteTaskRequest, v1.ExecuteTaskResponse] = (
            channel.unary_unary(
                "/wonder.v1.ExecutorService/ExecuteTask",
                Encoder(v1.ExecuteTaskRequest),
                v1.ExecuteTaskResponse.FromString,
            )
        )
        """Runs a task and waits for its end. A failed task is not an error of the call: the result has its
        `error`. If the caller disconnects, the server cancels the task, unless the request has a
        `request_id`. Errors: DEFINITION_NOT_FOUND, INPUT_INVALID, PROJECT_NOT_FOUND, AGENT_NOT_FOUND,
        CONVERSATION_NOT_FOUND, PERMISSION_DENIED, LIMIT_EXCEEDED, SERVER_DRAINING.
        """
        self.stream_task: grpc.aio.UnaryStreamMultiCallable[v1.StreamTaskRequest, v1.StreamTaskResponse] = (
            channel.unary_stream(
                "/wonder.v1.ExecutorService/StreamTask",
                Encoder(v1.StreamTaskRequest),
                v1.StreamTaskResponse.FromString,
            )
        )
        """Runs a task and streams its steps and their progress as they happen. The last message is the
        result. Errors: those of ExecuteTask.
        """
        self.list_action_kinds: grpc.aio.UnaryUnaryMultiCallable[
            v1.ListActionKindsRequest, v1.ListActionKindsResponse
        ] = channel.unary_unary(
            "/wonder.v1.ExecutorService/ListActionKinds",
            Encoder(v1.ListActionKindsRequest),
            v1.ListActionKindsResponse.FromString,
        )
        """Lists by name the kinds of action that steps can use, including those of connected workers.
        Errors: PAGE_TOKEN_INVALID.
        """
        self.work: grpc.aio.StreamStreamMultiCallable[v1.WorkRequest, v1.WorkResponse] = (
            channel.stream_stream(
                "/wonder.v1.ExecutorService/Work",
                Encoder(v1.WorkRequest),
                v1.WorkResponse.FromString,
            )
        )
        """Makes the client a worker that executes its own kinds of action.

        The worker registers first. Then the server sends assignments, at most as many at once as the
        worker accepts. Each assignment has a lease, which the worker's heartbeats extend. An assignment
        ends when its lease expires or the stream breaks. If the kind is idempotent, the server gives
        the assignment to another worker under the same `operation_id`. Otherwise the action fails with
        OUTCOME_UNKNOWN.

        The stream ends after the worker's `drain` or with a status. Errors: FIELD_INVALID and
        DEFINITION_INVALID for an invalid registration, TIMEOUT for a worker that sends nothing for the
        duration of a lease, PERMISSION_DENIED, SERVER_DRAINING.
        """


class FileServiceStub:
    """Files of projects: images, documents and texts.

    A file stays until DeleteFile or DeleteProject removes it. The deletion of a conversation does
    not delete files, since other conversations may refer to them. A message that refers to a
    deleted file keeps the part with its name, type and size.

    Paging and `request_id` follow the rules in the comment of LibraryService. Errors are listed
    without the prefix `ERROR_REASON_`.
    """

    def __init__(self, channel: TypedChannel) -> None:
        self.upload_file: grpc.aio.StreamUnaryMultiCallable[v1.UploadFileRequest, v1.UploadFileResponse] = (
            channel.stream_unary(
                "/wonder.v1.FileService/UploadFile",
                Encoder(v1.UploadFileRequest),
                v1.UploadFileResponse.FromString,
            )
        )
        """Stores a file. The first message is `start`, the others are pieces of the content in order. The
        server stores nothing if the stream ends early or a check fails. Errors: PROJECT_NOT_FOUND;
        FIELD_INVALID for a name, for a media type that the server does not accept or that is not the
        content's, and for a size or hash that is not the content's; PAYLOAD_TOO_LARGE for content above
        the setting `max_file_bytes`; TIMEOUT if a message does not arrive within `request_seconds`;
        LIMIT_EXCEEDED if too many uploads are in progress.
        """
        self.get_file: grpc.aio.UnaryStreamMultiCallable[v1.GetFileRequest, v1.GetFileResponse] = (
            channel.unary_stream(
                "/wonder.v1.FileService/GetFile",
                Encoder(v1.GetFileRequest),
                v1.GetFileResponse.FromString,
            )
        )
        """Sends a file: first its description, then its content from `offset` on. Errors: FILE_NOT_FOUND,
        CURSOR_OUT_OF_RANGE; STORAGE_UNAVAILABLE if the content is damaged.
        """
        self.list_files: grpc.aio.UnaryUnaryMultiCallable[v1.ListFilesRequest, v1.ListFilesResponse] = (
            channel.unary_unary(
                "/wonder.v1.FileService/ListFiles",
                Encoder(v1.ListFilesRequest),
                v1.ListFilesResponse.FromString,
            )
        )
        """Lists the files of a project, or of all projects. Errors: PROJECT_NOT_FOUND, PAGE_TOKEN_INVALID."""
        self.delete_file: grpc.aio.UnaryUnaryMultiCallable[v1.DeleteFileRequest, v1.DeleteFileResponse] = (
            channel.unary_unary(
                "/wonder.v1.FileService/DeleteFile",
                Encoder(v1.DeleteFileRequest),
                v1.DeleteFileResponse.FromString,
            )
        )
        """Deletes a file. Messages that refer to it stay. Errors: FILE_NOT_FOUND."""


class IdentityServiceStub:
    """Tenants, principals, API keys, role bindings and the audit.

    Paging, `request_id` and `etag` follow the rules in the comment of LibraryService. Errors are
    listed without the prefix `ERROR_REASON_`.
    """

    def __init__(self, channel: TypedChannel) -> None:
        self.who_am_i: grpc.aio.UnaryUnaryMultiCallable[v1.WhoAmIRequest, v1.WhoAmIResponse] = (
            channel.unary_unary(
                "/wonder.v1.IdentityService/WhoAmI",
                Encoder(v1.WhoAmIRequest),
                v1.WhoAmIResponse.FromString,
            )
        )
        """Returns the caller, its roles and its permissions. Errors: none."""
        self.create_tenant: grpc.aio.UnaryUnaryMultiCallable[
            v1.CreateTenantRequest, v1.CreateTenantResponse
        ] = channel.unary_unary(
            "/wonder.v1.IdentityService/CreateTenant",
            Encoder(v1.CreateTenantRequest),
            v1.CreateTenantResponse.FromString,
        )
        """Creates a tenant, with a project `default` and an agent `assistant` of its own. Errors:
        ALREADY_EXISTS, FIELD_INVALID.
        """
        self.get_tenant: grpc.aio.UnaryUnaryMultiCallable[v1.GetTenantRequest, v1.GetTenantResponse] = (
            channel.unary_unary(
                "/wonder.v1.IdentityService/GetTenant",
                Encoder(v1.GetTenantRequest),
                v1.GetTenantResponse.FromString,
            )
        )
        """Reads a tenant. Errors: TENANT_NOT_FOUND."""
        self.list_tenants: grpc.aio.UnaryUnaryMultiCallable[v1.ListTenantsRequest, v1.ListTenantsResponse] = (
            channel.unary_unary(
                "/wonder.v1.IdentityService/ListTenants",
                Encoder(v1.ListTenantsRequest),
                v1.ListTenantsResponse.FromString,
            )
        )
        """Lists the tenants that the caller administers, newest first; the tenant `default` is the last
        one. Errors: PAGE_TOKEN_INVALID.
        """
        self.update_tenant: grpc.aio.UnaryUnaryMultiCallable[
            v1.UpdateTenantRequest, v1.UpdateTenantResponse
        ] = channel.unary_unary(
            "/wonder.v1.IdentityService/UpdateTenant",
            Encoder(v1.UpdateTenantRequest),
            v1.UpdateTenantResponse.FromString,
        )
        """Changes the description of a tenant. Errors: TENANT_NOT_FOUND, ETAG_MISMATCH, FIELD_INVALID."""
        self.create_principal: grpc.aio.UnaryUnaryMultiCallable[
            v1.CreatePrincipalRequest, v1.CreatePrincipalResponse
        ] = channel.unary_unary(
            "/wonder.v1.IdentityService/CreatePrincipal",
            Encoder(v1.CreatePrincipalRequest),
            v1.CreatePrincipalResponse.FromString,
        )
        """Creates a principal. It has no roles and no keys yet. Errors: ALREADY_EXISTS, FIELD_INVALID,
        TENANT_NOT_FOUND.
        """
        self.get_principal: grpc.aio.UnaryUnaryMultiCallable[
            v1.GetPrincipalRequest, v1.GetPrincipalResponse
        ] = channel.unary_unary(
            "/wonder.v1.IdentityService/GetPrincipal",
            Encoder(v1.GetPrincipalRequest),
            v1.GetPrincipalResponse.FromString,
        )
        """Reads a principal. Errors: PRINCIPAL_NOT_FOUND."""
        self.list_principals: grpc.aio.UnaryUnaryMultiCallable[
            v1.ListPrincipalsRequest, v1.ListPrincipalsResponse
        ] = channel.unary_unary(
            "/wonder.v1.IdentityService/ListPrincipals",
            Encoder(v1.ListPrincipalsRequest),
            v1.ListPrincipalsResponse.FromString,
        )
        """Lists the principals of a tenant. Errors: TENANT_NOT_FOUND, PAGE_TOKEN_INVALID."""
        self.update_principal: grpc.aio.UnaryUnaryMultiCallable[
            v1.UpdatePrincipalRequest, v1.UpdatePrincipalResponse
        ] = channel.unary_unary(
            "/wonder.v1.IdentityService/UpdatePrincipal",
            Encoder(v1.UpdatePrincipalRequest),
            v1.UpdatePrincipalResponse.FromString,
        )
        """Changes the names for people and for issuers of a principal, and disables or enables it. Errors:
        PRINCIPAL_NOT_FOUND, ETAG_MISMATCH, ALREADY_EXISTS, FIELD_MASK_UNSUPPORTED, FIELD_INVALID.
        """
        self.delete_principal: grpc.aio.UnaryUnaryMultiCallable[
            v1.DeletePrincipalRequest, v1.DeletePrincipalResponse
        ] = channel.unary_unary(
            "/wonder.v1.IdentityService/DeletePrincipal",
            Encoder(v1.DeletePrincipalRequest),
            v1.DeletePrincipalResponse.FromString,
        )
        """Deletes a principal, its keys and its role bindings. Its name is not used again. The work that
        it started ends at its next step. Errors: PRINCIPAL_NOT_FOUND, ETAG_MISMATCH.
        """
        self.create_key: grpc.aio.UnaryUnaryMultiCallable[v1.CreateKeyRequest, v1.CreateKeyResponse] = (
            channel.unary_unary(
                "/wonder.v1.IdentityService/CreateKey",
                Encoder(v1.CreateKeyRequest),
                v1.CreateKeyResponse.FromString,
            )
        )
        """Creates a key of a principal. Errors: PRINCIPAL_NOT_FOUND, PROJECT_NOT_FOUND, FIELD_INVALID,
        LIMIT_EXCEEDED for the 101st valid key of a principal.
        """
        self.list_keys: grpc.aio.UnaryUnaryMultiCallable[v1.ListKeysRequest, v1.ListKeysResponse] = (
            channel.unary_unary(
                "/wonder.v1.IdentityService/ListKeys",
                Encoder(v1.ListKeysRequest),
                v1.ListKeysResponse.FromString,
            )
        )
        """Lists keys, newest first, without their secrets. Errors: PRINCIPAL_NOT_FOUND, TENANT_NOT_FOUND,
        PAGE_TOKEN_INVALID.
        """
        self.rotate_key: grpc.aio.UnaryUnaryMultiCallable[v1.RotateKeyRequest, v1.RotateKeyResponse] = (
            channel.unary_unary(
                "/wonder.v1.IdentityService/RotateKey",
                Encoder(v1.RotateKeyRequest),
                v1.RotateKeyResponse.FromString,
            )
        )
        """Creates a key that replaces another, with the same limits. Both are valid until `grace`. A
        caller rotates its own keys; those of others need the permission `keys.write`. Errors:
        KEY_NOT_FOUND, FIELD_INVALID, also for a key that is no longer valid or was rotated before.
        """
        self.revoke_key: grpc.aio.UnaryUnaryMultiCallable[v1.RevokeKeyRequest, v1.RevokeKeyResponse] = (
            channel.unary_unary(
                "/wonder.v1.IdentityService/RevokeKey",
                Encoder(v1.RevokeKeyRequest),
                v1.RevokeKeyResponse.FromString,
            )
        )
        """Revokes a key for good. Its calls are rejected within a second, and its open streams end.
        Errors: KEY_NOT_FOUND.
        """
        self.create_role_binding: grpc.aio.UnaryUnaryMultiCallable[
            v1.CreateRoleBindingRequest, v1.CreateRoleBindingResponse
        ] = channel.unary_unary(
            "/wonder.v1.IdentityService/CreateRoleBinding",
            Encoder(v1.CreateRoleBindingRequest),
            v1.CreateRoleBindingResponse.FromString,
        )
        """Gives a role to a principal or a group. Errors: ALREADY_EXISTS, PRINCIPAL_NOT_FOUND,
        PROJECT_NOT_FOUND, FIELD_INVALID; PERMISSION_DENIED for the role ADMIN of the server, if the
        caller does not have it.
        """
        self.list_role_bindings: grpc.aio.UnaryUnaryMultiCallable[
            v1.ListRoleBindingsRequest, v1.ListRoleBindingsResponse
        ] = channel.unary_unary(
            "/wonder.v1.IdentityService/ListRoleBindings",
            Encoder(v1.ListRoleBindingsRequest),
            v1.ListRoleBindingsResponse.FromString,
        )
        """Lists role bindings. Errors: TENANT_NOT_FOUND, PROJECT_NOT_FOUND, PRINCIPAL_NOT_FOUND,
        PAGE_TOKEN_INVALID.
        """
        self.delete_role_binding: grpc.aio.UnaryUnaryMultiCallable[
            v1.DeleteRoleBindingRequest, v1.DeleteRoleBindingResponse
        ] = channel.unary_unary(
            "/wonder.v1.IdentityService/DeleteRoleBinding",
            Encoder(v1.DeleteRoleBindingRequest),
            v1.DeleteRoleBindingResponse.FromString,
        )
        """Takes a role away. Errors: ROLE_BINDING_NOT_FOUND; FIELD_INVALID for the last binding of the
        role ADMIN of the server, if no tokens file names another administrator.
        """
        self.list_audit_entries: grpc.aio.UnaryUnaryMultiCallable[
            v1.ListAuditEntriesRequest, v1.ListAuditEntriesResponse
        ] = channel.unary_unary(
            "/wonder.v1.IdentityService/ListAuditEntries",
            Encoder(v1.ListAuditEntriesRequest),
            v1.ListAuditEntriesResponse.FromString,
        )
        """Lists entries of the audit. Errors: TENANT_NOT_FOUND, PAGE_TOKEN_INVALID."""


class LibraryServiceStub:
    """Libraries and their definitions, agents, projects and artifacts.

    These rules hold in all services of this package.

    Paging: `page_size` is 50 by default and at most 500. A list starts with the newest entry unless
    its method states another order. `next_page_token` is empty on the last page.

    `request_id` (at most 128 bytes) makes a change idempotent. The server answers a repeated
    request with the stored first answer, also if an agent, a file or a memory that the request
    names was deleted since; a method whose answer needs the deleted resource says so. A different
    request with the same `request_id` fails with ERROR_REASON_REQUEST_ID_REUSED. The server
    remembers the id for at least 24 hours. The id belongs to the caller: on a server with tokens,
    the same `request_id` from a token with another name is another request.

    `etag`: if it is set and is not the current etag of the resource, the change fails with
    ERROR_REASON_ETAG_MISMATCH. If it is empty, the server makes the change without this check.

    `validate_only`: the server checks the request and answers as if it had made the change, but
    keeps nothing.

    Permissions: each method names the permission that its caller needs, else it fails with
    ERROR_REASON_PERMISSION_DENIED. docs/security.md lists them with their roles.

    Errors are listed without the prefix `ERROR_REASON_`.
    """

    def __init__(self, channel: TypedChannel) -> None:
        self.create_library: grpc.aio.UnaryUnaryMultiCallable[
            v1.CreateLibraryRequest, v1.CreateLibraryResponse
        ] = channel.unary_unary(
            "/wonder.v1.LibraryService/CreateLibrary",
            Encoder(v1.CreateLibraryRequest),
            v1.CreateLibraryResponse.FromString,
        )
        """Creates an empty library. Errors: ALREADY_EXISTS, FIELD_INVALID."""
        self.get_library: grpc.aio.UnaryUnaryMultiCallable[v1.GetLibraryRequest, v1.GetLibraryResponse] = (
            channel.unary_unary(
                "/wonder.v1.LibraryService/GetLibrary",
                Encoder(v1.GetLibraryRequest),
                v1.GetLibraryResponse.FromString,
            )
        )
        """Reads a library. Errors: LIBRARY_NOT_FOUND."""
        self.list_libraries: grpc.aio.UnaryUnaryMultiCallable[
            v1.ListLibrariesRequest, v1.ListLibrariesResponse
        ] = channel.unary_unary(
            "/wonder.v1.LibraryService/ListLibraries",
            Encoder(v1.ListLibrariesRequest),
            v1.ListLibrariesResponse.FromString,
        )
        """Lists libraries by name. Errors: PAGE_TOKEN_INVALID."""
        self.delete_library: grpc.aio.UnaryUnaryMultiCallable[
            v1.DeleteLibraryRequest, v1.DeleteLibraryResponse
        ] = channel.unary_unary(
            "/wonder.v1.LibraryService/DeleteLibrary",
            Encoder(v1.DeleteLibraryRequest),
            v1.DeleteLibraryResponse.FromString,
        )
        """Deletes a library. Turns and runs in progress keep the revisions with which they started.
        Errors: LIBRARY_NOT_FOUND, ETAG_MISMATCH, RESOURCE_IN_USE.
        """
        self.put_definition: grpc.aio.UnaryUnaryMultiCallable[
            v1.PutDefinitionRequest, v1.PutDefinitionResponse
        ] = channel.unary_unary(
            "/wonder.v1.LibraryService/PutDefinition",
            Encoder(v1.PutDefinitionRequest),
            v1.PutDefinitionResponse.FromString,
        )
        """Saves a definition. A new definition becomes revision 1, a changed definition the next revision.
        An unchanged definition is not saved. Errors: LIBRARY_NOT_FOUND, DEFINITION_INVALID with the
        path of each violation, ETAG_MISMATCH.
        """
        self.get_definition: grpc.aio.UnaryUnaryMultiCallable[
            v1.GetDefinitionRequest, v1.GetDefinitionResponse
        ] = channel.unary_unary(
            "/wonder.v1.LibraryService/GetDefinition",
            Encoder(v1.GetDefinitionRequest),
            v1.GetDefinitionResponse.FromString,
        )
        """Reads one revision of a definition. Errors: DEFINITION_NOT_FOUND."""
        self.list_definitions: grpc.aio.UnaryUnaryMultiCallable[
            v1.ListDefinitionsRequest, v1.ListDefinitionsResponse
        ] = channel.unary_unary(
            "/wonder.v1.LibraryService/ListDefinitions",
            Encoder(v1.ListDefinitionsRequest),
            v1.ListDefinitionsResponse.FromString,
        )
        """Lists the newest revision of each definition, by library and name. Errors: LIBRARY_NOT_FOUND,
        PAGE_TOKEN_INVALID.
        """
        self.list_revisions: grpc.aio.UnaryUnaryMultiCallable[
            v1.ListRevisionsRequest, v1.ListRevisionsResponse
        ] = channel.unary_unary(
            "/wonder.v1.LibraryService/ListRevisions",
            Encoder(v1.ListRevisionsRequest),
            v1.ListRevisionsResponse.FromString,
        )
        """Lists the revisions of one definition. Errors: DEFINITION_NOT_FOUND, PAGE_TOKEN_INVALID."""
        self.delete_definition: grpc.aio.UnaryUnaryMultiCallable[
            v1.DeleteDefinitionRequest, v1.DeleteDefinitionResponse
        ] = channel.unary_unary(
            "/wonder.v1.LibraryService/DeleteDefinition",
            Encoder(v1.DeleteDefinitionRequest),
            v1.DeleteDefinitionResponse.FromString,
        )
        """Deletes a definition with all its revisions. Turns and runs in progress keep the revision with
        which they started. Errors: DEFINITION_NOT_FOUND, ETAG_MISMATCH, RESOURCE_IN_USE.
        """
        self.apply_definitions: grpc.aio.UnaryUnaryMultiCallable[
            v1.ApplyDefinitionsRequest, v1.ApplyDefinitionsResponse
        ] = channel.unary_unary(
            "/wonder.v1.LibraryService/ApplyDefinitions",
            Encoder(v1.ApplyDefinitionsRequest),
            v1.ApplyDefinitionsResponse.FromString,
        )
        """Saves many definitions of one library in one commit, all or none, and returns the changes. The
        definitions may refer to each other in any order. `prune` requires the permission
        `definitions.delete`, else PERMISSION_DENIED; so does a change of a project's network or
        repositories. Errors: DEFINITION_INVALID with the path of each violation, RESOURCE_IN_USE for a
        pruned definition that is in use, and those of CreateAgent, UpdateAgent, CreateProject and
        UpdateProject, with fields such as `agents[0].persona_id`.
        """
        self.export_definitions: grpc.aio.UnaryUnaryMultiCallable[
            v1.ExportDefinitionsRequest, v1.ExportDefinitionsResponse
        ] = channel.unary_unary(
            "/wonder.v1.LibraryService/ExportDefinitions",
            Encoder(v1.ExportDefinitionsRequest),
            v1.ExportDefinitionsResponse.FromString,
        )
        """Returns the newest revision of each definition in the form of a definition file: without the
        fields that the server sets. Errors: LIBRARY_NOT_FOUND, PAGE_TOKEN_INVALID.
        """
        self.create_agent: grpc.aio.UnaryUnaryMultiCallable[v1.CreateAgentRequest, v1.CreateAgentResponse] = (
            channel.unary_unary(
                "/wonder.v1.LibraryService/CreateAgent",
                Encoder(v1.CreateAgentRequest),
                v1.CreateAgentResponse.FromString,
            )
        )
        """Creates an agent without memories. Errors: ALREADY_EXISTS, DEFINITION_NOT_FOUND,
        DEFINITION_INVALID, PROJECT_NOT_FOUND.
        """
        self.get_agent: grpc.aio.UnaryUnaryMultiCallable[v1.GetAgentRequest, v1.GetAgentResponse] = (
            channel.unary_unary(
                "/wonder.v1.LibraryService/GetAgent",
                Encoder(v1.GetAgentRequest),
                v1.GetAgentResponse.FromString,
            )
        )
        """Reads an agent. Errors: AGENT_NOT_FOUND."""
        self.list_agents: grpc.aio.UnaryUnaryMultiCallable[v1.ListAgentsRequest, v1.ListAgentsResponse] = (
            channel.unary_unary(
                "/wonder.v1.LibraryService/ListAgents",
                Encoder(v1.ListAgentsRequest),
                v1.ListAgentsResponse.FromString,
            )
        )
        """Lists agents. Errors: PROJECT_NOT_FOUND, PAGE_TOKEN_INVALID."""
        self.update_agent: grpc.aio.UnaryUnaryMultiCallable[v1.UpdateAgentRequest, v1.UpdateAgentResponse] = (
            channel.unary_unary(
                "/wonder.v1.LibraryService/UpdateAgent",
                Encoder(v1.UpdateAgentRequest),
                v1.UpdateAgentResponse.FromString,
            )
        )
        """Updates an agent. Turns in progress are not affected. Errors: AGENT_NOT_FOUND, ETAG_MISMATCH,
        FIELD_MASK_UNSUPPORTED.
        """
        self.delete_agent: grpc.aio.UnaryUnaryMultiCallable[v1.DeleteAgentRequest, v1.DeleteAgentResponse] = (
            channel.unary_unary(
                "/wonder.v1.LibraryService/DeleteAgent",
                Encoder(v1.DeleteAgentRequest),
                v1.DeleteAgentResponse.FromString,
            )
        )
        """Deletes an agent and all its memories. Errors: AGENT_NOT_FOUND, ETAG_MISMATCH, RESOURCE_IN_USE
        while the agent takes part in an active turn.
        """
        self.create_project: grpc.aio.UnaryUnaryMultiCallable[
            v1.CreateProjectRequest, v1.CreateProjectResponse
        ] = channel.unary_unary(
            "/wonder.v1.LibraryService/CreateProject",
            Encoder(v1.CreateProjectRequest),
            v1.CreateProjectResponse.FromString,
        )
        """Creates a project. Errors: ALREADY_EXISTS, FIELD_INVALID; PERMISSION_DENIED for a network policy
        or repositories without the permission `projects.limits`.
        """
        self.get_project: grpc.aio.UnaryUnaryMultiCallable[v1.GetProjectRequest, v1.GetProjectResponse] = (
            channel.unary_unary(
                "/wonder.v1.LibraryService/GetProject",
                Encoder(v1.GetProjectRequest),
                v1.GetProjectResponse.FromString,
            )
        )
        """Reads a project. Errors: PROJECT_NOT_FOUND."""
        self.list_projects: grpc.aio.UnaryUnaryMultiCallable[
            v1.ListProjectsRequest, v1.ListProjectsResponse
        ] = channel.unary_unary(
            "/wonder.v1.LibraryService/ListProjects",
            Encoder(v1.ListProjectsRequest),
            v1.ListProjectsResponse.FromString,
        )
        """Lists projects. Errors: PAGE_TOKEN_INVALID."""
        self.update_project: grpc.aio.UnaryUnaryMultiCallable[
            v1.UpdateProjectRequest, v1.UpdateProjectResponse
        ] = channel.unary_unary(
            "/wonder.v1.LibraryService/UpdateProject",
            Encoder(v1.UpdateProjectRequest),
            v1.UpdateProjectResponse.FromString,
        )
        """Updates a project. Errors: PROJECT_NOT_FOUND, ETAG_MISMATCH, FIELD_MASK_UNSUPPORTED;
        PERMISSION_DENIED if `network` or `repositories` change without the permission
        `projects.limits`.
        """
        self.delete_project: grpc.aio.UnaryUnaryMultiCallable[
            v1.DeleteProjectRequest, v1.DeleteProjectResponse
        ] = channel.unary_unary(
            "/wonder.v1.LibraryService/DeleteProject",
            Encoder(v1.DeleteProjectRequest),
            v1.DeleteProjectResponse.FromString,
        )
        """Deletes a project, its artifacts and its files. Errors: PROJECT_NOT_FOUND, ETAG_MISMATCH,
        RESOURCE_IN_USE while agents or conversations belong to it.
        """
        self.read_artifact: grpc.aio.UnaryUnaryMultiCallable[
            v1.ReadArtifactRequest, v1.ReadArtifactResponse
        ] = channel.unary_unary(
            "/wonder.v1.LibraryService/ReadArtifact",
            Encoder(v1.ReadArtifactRequest),
            v1.ReadArtifactResponse.FromString,
        )
        """Reads an artifact. Errors: ARTIFACT_NOT_FOUND, PROJECT_NOT_FOUND, FIELD_INVALID. Each method for
        artifacts also fails with STORAGE_UNAVAILABLE if git does not work.
        """
        self.write_artifact: grpc.aio.UnaryUnaryMultiCallable[
            v1.WriteArtifactRequest, v1.WriteArtifactResponse
        ] = channel.unary_unary(
            "/wonder.v1.LibraryService/WriteArtifact",
            Encoder(v1.WriteArtifactRequest),
            v1.WriteArtifactResponse.FromString,
        )
        """Writes or deletes an artifact in one commit. Errors: PROJECT_NOT_FOUND, ETAG_MISMATCH,
        PAYLOAD_TOO_LARGE, FIELD_INVALID, ARTIFACT_NOT_FOUND for the deletion of an artifact that does
        not exist.
        """
        self.list_artifacts: grpc.aio.UnaryUnaryMultiCallable[
            v1.ListArtifactsRequest, v1.ListArtifactsResponse
        ] = channel.unary_unary(
            "/wonder.v1.LibraryService/ListArtifacts",
            Encoder(v1.ListArtifactsRequest),
            v1.ListArtifactsResponse.FromString,
        )
        """Lists artifacts by path. Errors: PROJECT_NOT_FOUND, PAGE_TOKEN_INVALID, ARTIFACT_NOT_FOUND for
        an unknown branch.
        """
        self.search_artifacts: grpc.aio.UnaryUnaryMultiCallable[
            v1.SearchArtifactsRequest, v1.SearchArtifactsResponse
        ] = channel.unary_unary(
            "/wonder.v1.LibraryService/SearchArtifacts",
            Encoder(v1.SearchArtifactsRequest),
            v1.SearchArtifactsResponse.FromString,
        )
        """Finds the lines and paths of artifacts that contain the words of a query. Errors:
        PROJECT_NOT_FOUND, ARTIFACT_NOT_FOUND for an unknown branch.
        """
        self.list_artifact_revisions: grpc.aio.UnaryUnaryMultiCallable[
            v1.ListArtifactRevisionsRequest, v1.ListArtifactRevisionsResponse
        ] = channel.unary_unary(
            "/wonder.v1.LibraryService/ListArtifactRevisions",
            Encoder(v1.ListArtifactRevisionsRequest),
            v1.ListArtifactRevisionsResponse.FromString,
        )
        """Lists the commits of a branch, or those that changed one artifact. Errors: PROJECT_NOT_FOUND,
        ARTIFACT_NOT_FOUND.
        """
        self.merge_artifacts: grpc.aio.UnaryUnaryMultiCallable[
            v1.MergeArtifactsRequest, v1.MergeArtifactsResponse
        ] = channel.unary_unary(
            "/wonder.v1.LibraryService/MergeArtifacts",
            Encoder(v1.MergeArtifactsRequest),
            v1.MergeArtifactsResponse.FromString,
        )
        """Merges one branch of artifacts into another. A conflict is not an error: the response lists the
        conflicts, and the server merges nothing. Errors: PROJECT_NOT_FOUND, ARTIFACT_NOT_FOUND for an
        unknown branch.
        """


class MemoryServiceStub:
    """Memories of agents. `agent_id` is the id or the name of an agent. A method reads and writes only
    the memories of that agent; a search with `across_agents` is the exception.

    Paging, `request_id` and `etag` follow the rules in the comment of LibraryService.
    """

    def __init__(self, channel: TypedChannel) -> None:
        self.write_memory: grpc.aio.UnaryUnaryMultiCallable[v1.WriteMemoryRequest, v1.WriteMemoryResponse] = (
            channel.unary_unary(
                "/wonder.v1.MemoryService/WriteMemory",
                Encoder(v1.WriteMemoryRequest),
                v1.WriteMemoryResponse.FromString,
            )
        )
        """Writes a memory. A search finds it as soon as the call has returned. Errors: AGENT_NOT_FOUND,
        FIELD_INVALID, PAYLOAD_TOO_LARGE, PAYLOAD_TOO_DEEP, STORAGE_UNAVAILABLE.
        """
        self.batch_write_memories: grpc.aio.UnaryUnaryMultiCallable[
            v1.BatchWriteMemoriesRequest, v1.BatchWriteMemoriesResponse
        ] = channel.unary_unary(
            "/wonder.v1.MemoryService/BatchWriteMemories",
            Encoder(v1.BatchWriteMemoriesRequest),
            v1.BatchWriteMemoriesResponse.FromString,
        )
        """Writes up to 1,000 memories in one commit: all of them or none. Errors: those of WriteMemory."""
        self.get_memory: grpc.aio.UnaryUnaryMultiCallable[v1.GetMemoryRequest, v1.GetMemoryResponse] = (
            channel.unary_unary(
                "/wonder.v1.MemoryService/GetMemory",
                Encoder(v1.GetMemoryRequest),
                v1.GetMemoryResponse.FromString,
            )
        )
        """Reads a memory. Errors: MEMORY_NOT_FOUND, also for a memory of another agent."""
        self.update_memory: grpc.aio.UnaryUnaryMultiCallable[
            v1.UpdateMemoryRequest, v1.UpdateMemoryResponse
        ] = channel.unary_unary(
            "/wonder.v1.MemoryService/UpdateMemory",
            Encoder(v1.UpdateMemoryRequest),
            v1.UpdateMemoryResponse.FromString,
        )
        """Updates a memory. Errors: MEMORY_NOT_FOUND, ETAG_MISMATCH, FIELD_MASK_UNSUPPORTED,
        FIELD_INVALID.
        """
        self.delete_memory: grpc.aio.UnaryUnaryMultiCallable[
            v1.DeleteMemoryRequest, v1.DeleteMemoryResponse
        ] = channel.unary_unary(
            "/wonder.v1.MemoryService/DeleteMemory",
            Encoder(v1.DeleteMemoryRequest),
            v1.DeleteMemoryResponse.FromString,
        )
        """Deletes a memory with its text, vector and blob, and the links of other memories to it. A memory
        that it had replaced is archived, so that a search does not find the old memory again. Errors:
        MEMORY_NOT_FOUND, ETAG_MISMATCH.
        """
        self.list_memories: grpc.aio.UnaryUnaryMultiCallable[
            v1.ListMemoriesRequest, v1.ListMemoriesResponse
        ] = channel.unary_unary(
            "/wonder.v1.MemoryService/ListMemories",
            Encoder(v1.ListMemoriesRequest),
            v1.ListMemoriesResponse.FromString,
        )
        """Lists the memories of an agent. Errors: AGENT_NOT_FOUND, PAGE_TOKEN_INVALID."""
        self.search_memories: grpc.aio.UnaryUnaryMultiCallable[
            v1.SearchMemoriesRequest, v1.SearchMemoriesResponse
        ] = channel.unary_unary(
            "/wonder.v1.MemoryService/SearchMemories",
            Encoder(v1.SearchMemoriesRequest),
            v1.SearchMemoriesResponse.FromString,
        )
        """Searches memories by words and by meaning. Returns the best matches with the parts of their
        scores. Errors: AGENT_NOT_FOUND, FIELD_INVALID, PERMISSION_DENIED for `across_agents` without
        the permission `memories.search_all`.
        """
        self.supersede_memory: grpc.aio.UnaryUnaryMultiCallable[
            v1.SupersedeMemoryRequest, v1.SupersedeMemoryResponse
        ] = channel.unary_unary(
            "/wonder.v1.MemoryService/SupersedeMemory",
            Encoder(v1.SupersedeMemoryRequest),
            v1.SupersedeMemoryResponse.FromString,
        )
        """Writes a memory that replaces another memory. The old memory stays readable by id; a search does
        not find it any more. Errors: MEMORY_NOT_FOUND, ETAG_MISMATCH, FIELD_INVALID, also for a memory
        that was replaced before.
        """
        self.get_memory_block: grpc.aio.UnaryUnaryMultiCallable[
            v1.GetMemoryBlockRequest, v1.GetMemoryBlockResponse
        ] = channel.unary_unary(
            "/wonder.v1.MemoryService/GetMemoryBlock",
            Encoder(v1.GetMemoryBlockRequest),
            v1.GetMemoryBlockResponse.FromString,
        )
        """Reads a memory block. Errors: MEMORY_NOT_FOUND, FIELD_INVALID."""
        self.list_memory_blocks: grpc.aio.UnaryUnaryMultiCallable[
            v1.ListMemoryBlocksRequest, v1.ListMemoryBlocksResponse
        ] = channel.unary_unary(
            "/wonder.v1.MemoryService/ListMemoryBlocks",
            Encoder(v1.ListMemoryBlocksRequest),
            v1.ListMemoryBlocksResponse.FromString,
        )
        """Lists the memory blocks of an agent, by subject and label. Errors: AGENT_NOT_FOUND,
        PAGE_TOKEN_INVALID.
        """
        self.set_memory_block: grpc.aio.UnaryUnaryMultiCallable[
            v1.SetMemoryBlockRequest, v1.SetMemoryBlockResponse
        ] = channel.unary_unary(
            "/wonder.v1.MemoryService/SetMemoryBlock",
            Encoder(v1.SetMemoryBlockRequest),
            v1.SetMemoryBlockResponse.FromString,
        )
        """Creates a memory block or replaces its fields. The next request to the model has it. Errors:
        FIELD_INVALID, ETAG_MISMATCH, LIMIT_EXCEEDED for the eleventh block of an agent, or of an agent
        about one user.
        """
        self.delete_memory_block: grpc.aio.UnaryUnaryMultiCallable[
            v1.DeleteMemoryBlockRequest, v1.DeleteMemoryBlockResponse
        ] = channel.unary_unary(
            "/wonder.v1.MemoryService/DeleteMemoryBlock",
            Encoder(v1.DeleteMemoryBlockRequest),
            v1.DeleteMemoryBlockResponse.FromString,
        )
        """Deletes a memory block, and the contents in the record of its changes. Errors: MEMORY_NOT_FOUND,
        ETAG_MISMATCH.
        """
        self.list_memory_block_changes: grpc.aio.UnaryUnaryMultiCallable[
            v1.ListMemoryBlockChangesRequest, v1.ListMemoryBlockChangesResponse
        ] = channel.unary_unary(
            "/wonder.v1.MemoryService/ListMemoryBlockChanges",
            Encoder(v1.ListMemoryBlockChangesRequest),
            v1.ListMemoryBlockChangesResponse.FromString,
        )
        """Lists the newest 50 changes of a memory block, newest first, also of a deleted one. Errors:
        AGENT_NOT_FOUND, FIELD_INVALID, PAGE_TOKEN_INVALID.
        """
