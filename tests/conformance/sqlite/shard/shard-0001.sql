BEGIN TRANSACTION;
CREATE TABLE actors (
    id         TEXT PRIMARY KEY,
    kind       TEXT    NOT NULL,
    root       TEXT    NOT NULL,
    entry_head INTEGER NOT NULL,
    event_head INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO "actors" VALUES('run_01HF7YAT000000000000000011','run','conv_01HF7YAT0000000000000000A1',2,6);
INSERT INTO "actors" VALUES('run_01HF7YAT000000000000000021','run','run_01HF7YAT000000000000000021',1,3);
INSERT INTO "actors" VALUES('run_01HF7YAT000000000000000031','run','run_01HF7YAT000000000000000031',2,6);
CREATE TABLE context (
    actor      TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    parent     TEXT    NOT NULL,
    ordinal    INTEGER NOT NULL,
    status     TEXT    NOT NULL,
    alias      TEXT    NOT NULL,
    live       INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    data       TEXT    NOT NULL,
    PRIMARY KEY (actor, id)
);
INSERT INTO "context" VALUES('run_01HF7YAT000000000000000011','state.a','',0,'','',1,0,'{"run_id":"run_01HF7YAT000000000000000011","section":"state","key":"a","value":{"$":"b2303143768b12a8b01e0e153be8fc4b"}}');
INSERT INTO "context" VALUES('run_01HF7YAT000000000000000031','state.n','',0,'','',1,0,'{"run_id":"run_01HF7YAT000000000000000031","section":"state","key":"n","value":3}');
INSERT INTO "context" VALUES('run_01HF7YAT000000000000000031','output.last','',0,'','',1,0,'{"run_id":"run_01HF7YAT000000000000000031","section":"output","key":"last","value":3}');
CREATE TABLE conversations (
    actor      TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    parent     TEXT    NOT NULL,
    ordinal    INTEGER NOT NULL,
    status     TEXT    NOT NULL,
    alias      TEXT    NOT NULL,
    live       INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    data       TEXT    NOT NULL,
    PRIMARY KEY (actor, id)
);
CREATE TABLE entries (
    actor     TEXT    NOT NULL,
    sequence  INTEGER NOT NULL,
    at_ms     INTEGER NOT NULL,
    input     TEXT    NOT NULL,
    decisions TEXT    NOT NULL,
    PRIMARY KEY (actor, sequence)
) WITHOUT ROWID;
INSERT INTO "entries" VALUES('run_01HF7YAT000000000000000011',1,1700000000000,'["Start",{"$":"f63e2e8db3780500560de5ccc57a6ae8"}]','[{"$":"af8fbfa7fa0a81e7f5128d6864c7592a"},["MoveToken",{"token":{"$":"ae1f694b278f078719c880857f4d3b40"}}],["DispatchNode",{"execution":{"$":"bb434b3b30e2f8308c6f3fc649fc9b5d"},"operation":{"$":"3902763680a28438a51d0c541244c08f"}}]]');
INSERT INTO "entries" VALUES('run_01HF7YAT000000000000000011',2,1700000000000,'["NodeSucceeded",{"operation_id":"op_01HF7YAT00RR9V7DFF7B1TW25S","output":{"$":"b2303143768b12a8b01e0e153be8fc4b"}}]','[["RecordExecution",{"execution":{"$":"b9d8e952c0af809390b555b80314db52"},"operation_id":"op_01HF7YAT00RR9V7DFF7B1TW25S"}],["SetContext",{"value":{"run_id":"run_01HF7YAT000000000000000011","section":"state","key":"a","value":{"$":"b2303143768b12a8b01e0e153be8fc4b"}}}],["MoveToken",{"$":"289619768df45f615080b053461764e2"}],["EndRun",{"run":{"$":"e02454d7698cc2a92f54e068ce891e1a"}}]]');
INSERT INTO "entries" VALUES('run_01HF7YAT000000000000000021',1,1700000000000,'["Start",{"$":"ed698b1914d784610e883249b1d6ca5c"}]','[{"$":"ea6e2b231fa6e09ccdc45232f848da87"},["MoveToken",{"token":{"$":"96770b2607d2fd0ec17a182470d6c140"}}],["DispatchNode",{"execution":{"$":"3605d65552a11d755571abb89fcdc647"},"operation":{"$":"89014d9aa5c1f15e489c11ae11f1d8e4"}}]]');
INSERT INTO "entries" VALUES('run_01HF7YAT000000000000000031',1,1700000000000,'["Start",{"$":"1d1b0baabfb1329ab77ddab50b6dc1ad"}]','[{"$":"243349cd76a926611a8107137bac0959"},["MoveToken",{"token":{"$":"3de6d6b593b2ee58779b27658426d54d"}}],["DispatchNode",{"execution":{"$":"5fdec5ba18cd2d302cae22466d3ca16e"},"operation":{"$":"bcf2b4420f219c23956bd5d993205d25"}}]]');
INSERT INTO "entries" VALUES('run_01HF7YAT000000000000000031',2,1700000000000,'["NodeSucceeded",{"operation_id":"op_01HF7YAT000HWH79TSP9C17554","output":{"$":"9dff0430203c2f60935b823201b3c755"}}]','[["RecordExecution",{"execution":{"$":"07afcbfdb5c21740b4c8a6ac1235d76e"},"operation_id":"op_01HF7YAT000HWH79TSP9C17554"}],["SetContext",{"value":{"run_id":"run_01HF7YAT000000000000000031","section":"state","key":"n","value":3}}],["SetContext",{"value":{"run_id":"run_01HF7YAT000000000000000031","section":"output","key":"last","value":3}}],["MoveToken",{"token":{"$":"d6acec3c4d15b44a507ceae01809dd5d"}}],["DispatchNode",{"execution":{"$":"ed033c437133a54c43f6e45d2e425d6a"},"operation":{"$":"2d0264afa7fd6e615a1e49fefed2e506"}}]]');
CREATE TABLE events (
    actor    TEXT    NOT NULL,
    sequence INTEGER NOT NULL,
    at_ms    INTEGER NOT NULL,
    name     TEXT    NOT NULL,
    kind     TEXT    NOT NULL,
    turn_id  TEXT    NOT NULL,
    message_id TEXT  NOT NULL,
    data     TEXT    NOT NULL,
    PRIMARY KEY (actor, sequence)
) WITHOUT ROWID;
INSERT INTO "events" VALUES('run_01HF7YAT000000000000000011',1,1700000000000,'workflow_started','run_started','','','{"id":"run_01HF7YAT000000000000000011","workflow_ref":"team/graph@1","workflow_id":"def_graph","scope":{"$":"55589452a544dbb66d2d92e192e31198"},"parent":null,"volatile":false,"status":"running","input":{"$":"8e19770421e591c4e8c0f723ceedb701"},"output":{},"fault":null,"executions":0,"version":1,"created_ms":1700000000000,"completed_ms":0}');
INSERT INTO "events" VALUES('run_01HF7YAT000000000000000011',2,1700000000000,'token.moved','token_moved','','','{"id":"tok_01HF7YAT004NGZ0FKPKK9NAZM7","run_id":"run_01HF7YAT000000000000000011","node_id":"a","status":"waiting_for_task","created_ms":1700000000000,"updated_ms":1700000000000}');
INSERT INTO "events" VALUES('run_01HF7YAT000000000000000011',3,1700000000000,'node.started','node_started','','','{"id":"exec_01HF7YAT00ZGYRTG3A5TNENH56","run_id":"run_01HF7YAT000000000000000011","ordinal":1,"node_id":"a","status":"running","output":null,"fault":null,"started_ms":1700000000000,"completed_ms":0}');
INSERT INTO "events" VALUES('run_01HF7YAT000000000000000011',4,1700000000000,'node.completed','node_completed','','','{"id":"exec_01HF7YAT00ZGYRTG3A5TNENH56","run_id":"run_01HF7YAT000000000000000011","ordinal":1,"node_id":"a","status":"completed","output":{"$":"b2303143768b12a8b01e0e153be8fc4b"},"fault":null,"started_ms":1700000000000,"completed_ms":1700000000000}');
INSERT INTO "events" VALUES('run_01HF7YAT000000000000000011',5,1700000000000,'token.moved','token_moved','','','{"id":"tok_01HF7YAT004NGZ0FKPKK9NAZM7","run_id":"run_01HF7YAT000000000000000011","node_id":"a","status":"completed","created_ms":1700000000000,"updated_ms":1700000000000}');
INSERT INTO "events" VALUES('run_01HF7YAT000000000000000011',6,1700000000000,'workflow_completed','run_ended','','','{"id":"run_01HF7YAT000000000000000011","workflow_ref":"team/graph@1","workflow_id":"def_graph","scope":{"$":"55589452a544dbb66d2d92e192e31198"},"parent":null,"volatile":false,"status":"completed","input":{"$":"8e19770421e591c4e8c0f723ceedb701"},"output":{},"fault":null,"executions":1,"version":1,"created_ms":1700000000000,"completed_ms":1700000000000}');
INSERT INTO "events" VALUES('run_01HF7YAT000000000000000021',1,1700000000000,'workflow_started','run_started','','','{"id":"run_01HF7YAT000000000000000021","workflow_ref":"team/graph@1","workflow_id":"def_graph","scope":{"project_id":"proj_1","agent_id":"","conversation_id":"","turn_id":"","run_id":"run_01HF7YAT000000000000000021","key":""},"parent":null,"volatile":false,"status":"running","input":{"$":"2dadd16f10ccc8ee106cd68cd500c149"},"output":{},"fault":null,"executions":0,"version":1,"created_ms":1700000000000,"completed_ms":0}');
INSERT INTO "events" VALUES('run_01HF7YAT000000000000000021',2,1700000000000,'token.moved','token_moved','','','{"id":"tok_01HF7YAT004164CTVK6Y7WG26G","run_id":"run_01HF7YAT000000000000000021","node_id":"a","status":"waiting_for_task","created_ms":1700000000000,"updated_ms":1700000000000}');
INSERT INTO "events" VALUES('run_01HF7YAT000000000000000021',3,1700000000000,'node.started','node_started','','','{"id":"exec_01HF7YAT00XMXGBZ65XYWXY2AP","run_id":"run_01HF7YAT000000000000000021","ordinal":1,"node_id":"a","status":"running","output":null,"fault":null,"started_ms":1700000000000,"completed_ms":0}');
INSERT INTO "events" VALUES('run_01HF7YAT000000000000000031',1,1700000000000,'workflow_started','run_started','','','{"id":"run_01HF7YAT000000000000000031","workflow_ref":"team/graph@1","workflow_id":"def_graph","scope":{"project_id":"proj_1","agent_id":"","conversation_id":"","turn_id":"","run_id":"run_01HF7YAT000000000000000031","key":""},"parent":null,"volatile":false,"status":"running","input":{"$":"6251c83d8d253f70ab336917a8ef6ad9"},"output":{},"fault":null,"executions":0,"version":1,"created_ms":1700000000000,"completed_ms":0}');
INSERT INTO "events" VALUES('run_01HF7YAT000000000000000031',2,1700000000000,'token.moved','token_moved','','','{"id":"tok_01HF7YAT002PT5N31HRZWC9DK5","run_id":"run_01HF7YAT000000000000000031","node_id":"a","status":"waiting_for_task","created_ms":1700000000000,"updated_ms":1700000000000}');
INSERT INTO "events" VALUES('run_01HF7YAT000000000000000031',3,1700000000000,'node.started','node_started','','','{"id":"exec_01HF7YAT0063381F8D9P532CFV","run_id":"run_01HF7YAT000000000000000031","ordinal":1,"node_id":"a","status":"running","output":null,"fault":null,"started_ms":1700000000000,"completed_ms":0}');
INSERT INTO "events" VALUES('run_01HF7YAT000000000000000031',4,1700000000000,'node.completed','node_completed','','','{"id":"exec_01HF7YAT0063381F8D9P532CFV","run_id":"run_01HF7YAT000000000000000031","ordinal":1,"node_id":"a","status":"completed","output":{"$":"9dff0430203c2f60935b823201b3c755"},"fault":null,"started_ms":1700000000000,"completed_ms":1700000000000}');
INSERT INTO "events" VALUES('run_01HF7YAT000000000000000031',5,1700000000000,'token.moved','token_moved','','','{"id":"tok_01HF7YAT002PT5N31HRZWC9DK5","run_id":"run_01HF7YAT000000000000000031","node_id":"c","status":"waiting_for_task","created_ms":1700000000000,"updated_ms":1700000000000}');
INSERT INTO "events" VALUES('run_01HF7YAT000000000000000031',6,1700000000000,'node.started','node_started','','','{"id":"exec_01HF7YAT00NQCMHGQFWJVKTZHJ","run_id":"run_01HF7YAT000000000000000031","ordinal":2,"node_id":"c","status":"running","output":null,"fault":null,"started_ms":1700000000000,"completed_ms":0}');
CREATE TABLE executions (
    actor      TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    parent     TEXT    NOT NULL,
    ordinal    INTEGER NOT NULL,
    status     TEXT    NOT NULL,
    alias      TEXT    NOT NULL,
    live       INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    data       TEXT    NOT NULL,
    PRIMARY KEY (actor, id)
);
INSERT INTO "executions" VALUES('run_01HF7YAT000000000000000011','exec_01HF7YAT00ZGYRTG3A5TNENH56','a',1,'completed','',0,1700000000000,'{"id":"exec_01HF7YAT00ZGYRTG3A5TNENH56","run_id":"run_01HF7YAT000000000000000011","ordinal":1,"node_id":"a","status":"completed","output":{"$":"b2303143768b12a8b01e0e153be8fc4b"},"fault":null,"started_ms":1700000000000,"completed_ms":1700000000000}');
INSERT INTO "executions" VALUES('run_01HF7YAT000000000000000021','exec_01HF7YAT00XMXGBZ65XYWXY2AP','a',1,'running','',1,1700000000000,'{"id":"exec_01HF7YAT00XMXGBZ65XYWXY2AP","run_id":"run_01HF7YAT000000000000000021","ordinal":1,"node_id":"a","status":"running","output":null,"fault":null,"started_ms":1700000000000,"completed_ms":0}');
INSERT INTO "executions" VALUES('run_01HF7YAT000000000000000031','exec_01HF7YAT0063381F8D9P532CFV','a',1,'completed','',0,1700000000000,'{"id":"exec_01HF7YAT0063381F8D9P532CFV","run_id":"run_01HF7YAT000000000000000031","ordinal":1,"node_id":"a","status":"completed","output":{"$":"9dff0430203c2f60935b823201b3c755"},"fault":null,"started_ms":1700000000000,"completed_ms":1700000000000}');
INSERT INTO "executions" VALUES('run_01HF7YAT000000000000000031','exec_01HF7YAT00NQCMHGQFWJVKTZHJ','c',2,'running','',1,1700000000000,'{"id":"exec_01HF7YAT00NQCMHGQFWJVKTZHJ","run_id":"run_01HF7YAT000000000000000031","ordinal":2,"node_id":"c","status":"running","output":null,"fault":null,"started_ms":1700000000000,"completed_ms":0}');
CREATE TABLE identity (
    shard  INTEGER NOT NULL,
    shards INTEGER NOT NULL
);
INSERT INTO "identity" VALUES(1,3);
CREATE TABLE messages (
    actor      TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    parent     TEXT    NOT NULL,
    ordinal    INTEGER NOT NULL,
    status     TEXT    NOT NULL,
    alias      TEXT    NOT NULL,
    live       INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    data       TEXT    NOT NULL,
    PRIMARY KEY (actor, id)
);
CREATE TABLE migrations (position INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
INSERT INTO "migrations" VALUES(1,'0001_shard');
CREATE TABLE moves (
    actor      TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    parent     TEXT    NOT NULL,
    ordinal    INTEGER NOT NULL,
    status     TEXT    NOT NULL,
    alias      TEXT    NOT NULL,
    live       INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    data       TEXT    NOT NULL,
    PRIMARY KEY (actor, id)
);
CREATE TABLE operations (
    actor      TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    parent     TEXT    NOT NULL,
    ordinal    INTEGER NOT NULL,
    status     TEXT    NOT NULL,
    alias      TEXT    NOT NULL,
    live       INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    data       TEXT    NOT NULL,
    PRIMARY KEY (actor, id)
);
INSERT INTO "operations" VALUES('run_01HF7YAT000000000000000021','op_01HF7YAT00NZXJBPTDV0RP4HJV','tok_01HF7YAT004164CTVK6Y7WG26G',0,'dispatched','',1,1700000000000,'{"id":"op_01HF7YAT00NZXJBPTDV0RP4HJV","token_id":"tok_01HF7YAT004164CTVK6Y7WG26G","execution_id":"exec_01HF7YAT00XMXGBZ65XYWXY2AP","node_id":"a","run_id":"run_01HF7YAT000000000000000021","ordinal":1,"input":{"$":"2dadd16f10ccc8ee106cd68cd500c149"},"child_run_id":"","dispatches":1,"timeout_ms":0,"wake_ms":0,"repeatable":true,"created_ms":1700000000000}');
INSERT INTO "operations" VALUES('run_01HF7YAT000000000000000031','op_01HF7YAT00WSX5BYW5BJZNBA09','tok_01HF7YAT002PT5N31HRZWC9DK5',0,'dispatched','',1,1700000000000,'{"id":"op_01HF7YAT00WSX5BYW5BJZNBA09","token_id":"tok_01HF7YAT002PT5N31HRZWC9DK5","execution_id":"exec_01HF7YAT00NQCMHGQFWJVKTZHJ","node_id":"c","run_id":"run_01HF7YAT000000000000000031","ordinal":2,"input":{"$":"6251c83d8d253f70ab336917a8ef6ad9"},"child_run_id":"","dispatches":1,"timeout_ms":0,"wake_ms":0,"repeatable":false,"created_ms":1700000000000}');
CREATE TABLE parts (
    root TEXT NOT NULL,
    hash TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (root, hash)
) WITHOUT ROWID;
INSERT INTO "parts" VALUES('conv_01HF7YAT0000000000000000A1','001ee16cd5c9c094fff936de08210a3f','{"id":"s","action_id":"","action":{"kind":"context","config":{},"timeout_ms":30000,"max_attempts":3,"backoff_ms":100},"condition":"","input_mapping":{},"output_mapping":{},"on_failure":"abort"}');
INSERT INTO "parts" VALUES('conv_01HF7YAT0000000000000000A1','14f29fdd1953b6f0a4861c4bd8b3a646','{"pin":{"definition_id":"def_w","library":"team","name":"w","revision":1},"spec":{"$":"47949b25b9bfd5c8ea5389ae6505181a"},"tasks":{"t":{"pin":{"definition_id":"def_t","library":"team","name":"t","revision":1},"spec":{"$":"bbdc7dd929cd7f12bd2ae602befb0cf9"}}},"workflows":{}}');
INSERT INTO "parts" VALUES('conv_01HF7YAT0000000000000000A1','1864d0917dde32431c40c22656c0837e','{"id":"s","action_id":"","action":{"kind":"shell","config":{},"timeout_ms":30000,"max_attempts":3,"backoff_ms":100},"condition":"","input_mapping":{},"output_mapping":{},"on_failure":"abort"}');
INSERT INTO "parts" VALUES('conv_01HF7YAT0000000000000000A1','289619768df45f615080b053461764e2','{"token":{"id":"tok_01HF7YAT004NGZ0FKPKK9NAZM7","run_id":"run_01HF7YAT000000000000000011","node_id":"a","status":"completed","created_ms":1700000000000,"updated_ms":1700000000000}}');
INSERT INTO "parts" VALUES('conv_01HF7YAT0000000000000000A1','3902763680a28438a51d0c541244c08f','{"id":"op_01HF7YAT00RR9V7DFF7B1TW25S","token_id":"tok_01HF7YAT004NGZ0FKPKK9NAZM7","execution_id":"exec_01HF7YAT00ZGYRTG3A5TNENH56","node_id":"a","run_id":"run_01HF7YAT000000000000000011","ordinal":1,"input":{"$":"8e19770421e591c4e8c0f723ceedb701"},"child_run_id":"","dispatches":1,"timeout_ms":0,"wake_ms":0,"repeatable":true,"created_ms":1700000000000}');
INSERT INTO "parts" VALUES('conv_01HF7YAT0000000000000000A1','4166c5e266d80973ebf70408e5a176be','{"steps":[{"$":"1864d0917dde32431c40c22656c0837e"}],"input_schema":{},"output_schema":{},"retry":{"max_attempts":1,"backoff_ms":1000,"timeout_ms":60000}}');
INSERT INTO "parts" VALUES('conv_01HF7YAT0000000000000000A1','47949b25b9bfd5c8ea5389ae6505181a','{"nodes":[{"id":"n","task_id":"t","workflow_id":"","input_mapping":{},"output_mapping":{},"timeout_ms":0,"description":""}],"transitions":[],"initial_node_id":"n","input_schema":{},"output_schema":{},"output_mapping":{},"timeout_ms":0}');
INSERT INTO "parts" VALUES('conv_01HF7YAT0000000000000000A1','55589452a544dbb66d2d92e192e31198','{"project_id":"proj_01HF7YAT0000000000000000A1","agent_id":"agt_01HF7YAT0000000000000000A1","conversation_id":"conv_01HF7YAT0000000000000000A1","turn_id":"turn_01HF7YAT0000000000000000A1","run_id":"run_01HF7YAT000000000000000011","key":""}');
INSERT INTO "parts" VALUES('conv_01HF7YAT0000000000000000A1','6700e51ba29fb2caa3c67d61707b7a4a','{"pin":{"definition_id":"def_graph","library":"team","name":"graph","revision":1},"spec":{"$":"a89a8f76018a15f1bcd67cdbbdb30c1a"},"tasks":{"$":"aa02e830e3ea0ee2cbb684958c1f5098"},"workflows":{"w":{"$":"14f29fdd1953b6f0a4861c4bd8b3a646"}}}');
INSERT INTO "parts" VALUES('conv_01HF7YAT0000000000000000A1','8e19770421e591c4e8c0f723ceedb701','{"n":1,"big":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}');
INSERT INTO "parts" VALUES('conv_01HF7YAT0000000000000000A1','91c0a0bc5ff9778913d350f2178632ef','{"id":"run_01HF7YAT000000000000000011","workflow_ref":"team/graph@1","workflow_id":"def_graph","scope":{"$":"55589452a544dbb66d2d92e192e31198"},"parent":null,"volatile":false,"status":"running","input":{"$":"8e19770421e591c4e8c0f723ceedb701"},"output":{},"fault":null,"executions":0,"version":1,"created_ms":1700000000000,"completed_ms":0}');
INSERT INTO "parts" VALUES('conv_01HF7YAT0000000000000000A1','a89a8f76018a15f1bcd67cdbbdb30c1a','{"nodes":[{"id":"a","task_id":"t","workflow_id":"","input_mapping":{},"output_mapping":{},"timeout_ms":0,"description":""}],"transitions":[],"initial_node_id":"a","input_schema":{},"output_schema":{},"output_mapping":{},"timeout_ms":0}');
INSERT INTO "parts" VALUES('conv_01HF7YAT0000000000000000A1','aa02e830e3ea0ee2cbb684958c1f5098','{"t":{"pin":{"definition_id":"def_t","library":"team","name":"t","revision":1},"spec":{"$":"bbdc7dd929cd7f12bd2ae602befb0cf9"}},"once":{"pin":{"definition_id":"def_once","library":"team","name":"once","revision":1},"spec":{"$":"4166c5e266d80973ebf70408e5a176be"}}}');
INSERT INTO "parts" VALUES('conv_01HF7YAT0000000000000000A1','ae1f694b278f078719c880857f4d3b40','{"id":"tok_01HF7YAT004NGZ0FKPKK9NAZM7","run_id":"run_01HF7YAT000000000000000011","node_id":"a","status":"waiting_for_task","created_ms":1700000000000,"updated_ms":1700000000000}');
INSERT INTO "parts" VALUES('conv_01HF7YAT0000000000000000A1','af8fbfa7fa0a81e7f5128d6864c7592a','["StartRun",{"run":{"$":"91c0a0bc5ff9778913d350f2178632ef"},"pinned":{"run_id":"run_01HF7YAT000000000000000011","workflow":{"$":"6700e51ba29fb2caa3c67d61707b7a4a"}}}]');
INSERT INTO "parts" VALUES('conv_01HF7YAT0000000000000000A1','b2303143768b12a8b01e0e153be8fc4b','{"n":1,"pad":"yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"}');
INSERT INTO "parts" VALUES('conv_01HF7YAT0000000000000000A1','b66979883a13e616e8d57a5ecdc60b74','{"project_id":"proj_01HF7YAT0000000000000000A1","agent_id":"agt_01HF7YAT0000000000000000A1","conversation_id":"conv_01HF7YAT0000000000000000A1","turn_id":"turn_01HF7YAT0000000000000000A1","run_id":"","key":""}');
INSERT INTO "parts" VALUES('conv_01HF7YAT0000000000000000A1','b9d8e952c0af809390b555b80314db52','{"id":"exec_01HF7YAT00ZGYRTG3A5TNENH56","run_id":"run_01HF7YAT000000000000000011","ordinal":1,"node_id":"a","status":"completed","output":{"$":"b2303143768b12a8b01e0e153be8fc4b"},"fault":null,"started_ms":1700000000000,"completed_ms":1700000000000}');
INSERT INTO "parts" VALUES('conv_01HF7YAT0000000000000000A1','bb434b3b30e2f8308c6f3fc649fc9b5d','{"id":"exec_01HF7YAT00ZGYRTG3A5TNENH56","run_id":"run_01HF7YAT000000000000000011","ordinal":1,"node_id":"a","status":"running","output":null,"fault":null,"started_ms":1700000000000,"completed_ms":0}');
INSERT INTO "parts" VALUES('conv_01HF7YAT0000000000000000A1','bbdc7dd929cd7f12bd2ae602befb0cf9','{"steps":[{"$":"001ee16cd5c9c094fff936de08210a3f"}],"input_schema":{},"output_schema":{},"retry":{"max_attempts":1,"backoff_ms":1000,"timeout_ms":60000}}');
INSERT INTO "parts" VALUES('conv_01HF7YAT0000000000000000A1','e02454d7698cc2a92f54e068ce891e1a','{"id":"run_01HF7YAT000000000000000011","workflow_ref":"team/graph@1","workflow_id":"def_graph","scope":{"$":"55589452a544dbb66d2d92e192e31198"},"parent":null,"volatile":false,"status":"completed","input":{"$":"8e19770421e591c4e8c0f723ceedb701"},"output":{},"fault":null,"executions":1,"version":1,"created_ms":1700000000000,"completed_ms":1700000000000}');
INSERT INTO "parts" VALUES('conv_01HF7YAT0000000000000000A1','f63e2e8db3780500560de5ccc57a6ae8','{"run_id":"run_01HF7YAT000000000000000011","workflow":{"$":"6700e51ba29fb2caa3c67d61707b7a4a"},"input":{"$":"8e19770421e591c4e8c0f723ceedb701"},"scope":{"$":"b66979883a13e616e8d57a5ecdc60b74"},"parent":null,"volatile":false}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000021','001ee16cd5c9c094fff936de08210a3f','{"id":"s","action_id":"","action":{"kind":"context","config":{},"timeout_ms":30000,"max_attempts":3,"backoff_ms":100},"condition":"","input_mapping":{},"output_mapping":{},"on_failure":"abort"}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000021','08560c4b16266fb9373e398dc9d54c6d','{"id":"run_01HF7YAT000000000000000021","workflow_ref":"team/graph@1","workflow_id":"def_graph","scope":{"project_id":"proj_1","agent_id":"","conversation_id":"","turn_id":"","run_id":"run_01HF7YAT000000000000000021","key":""},"parent":null,"volatile":false,"status":"running","input":{"$":"2dadd16f10ccc8ee106cd68cd500c149"},"output":{},"fault":null,"executions":0,"version":1,"created_ms":1700000000000,"completed_ms":0}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000021','14f29fdd1953b6f0a4861c4bd8b3a646','{"pin":{"definition_id":"def_w","library":"team","name":"w","revision":1},"spec":{"$":"47949b25b9bfd5c8ea5389ae6505181a"},"tasks":{"t":{"pin":{"definition_id":"def_t","library":"team","name":"t","revision":1},"spec":{"$":"bbdc7dd929cd7f12bd2ae602befb0cf9"}}},"workflows":{}}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000021','1864d0917dde32431c40c22656c0837e','{"id":"s","action_id":"","action":{"kind":"shell","config":{},"timeout_ms":30000,"max_attempts":3,"backoff_ms":100},"condition":"","input_mapping":{},"output_mapping":{},"on_failure":"abort"}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000021','2dadd16f10ccc8ee106cd68cd500c149','{"n":2,"big":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000021','3605d65552a11d755571abb89fcdc647','{"id":"exec_01HF7YAT00XMXGBZ65XYWXY2AP","run_id":"run_01HF7YAT000000000000000021","ordinal":1,"node_id":"a","status":"running","output":null,"fault":null,"started_ms":1700000000000,"completed_ms":0}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000021','4166c5e266d80973ebf70408e5a176be','{"steps":[{"$":"1864d0917dde32431c40c22656c0837e"}],"input_schema":{},"output_schema":{},"retry":{"max_attempts":1,"backoff_ms":1000,"timeout_ms":60000}}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000021','47949b25b9bfd5c8ea5389ae6505181a','{"nodes":[{"id":"n","task_id":"t","workflow_id":"","input_mapping":{},"output_mapping":{},"timeout_ms":0,"description":""}],"transitions":[],"initial_node_id":"n","input_schema":{},"output_schema":{},"output_mapping":{},"timeout_ms":0}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000021','6700e51ba29fb2caa3c67d61707b7a4a','{"pin":{"definition_id":"def_graph","library":"team","name":"graph","revision":1},"spec":{"$":"a89a8f76018a15f1bcd67cdbbdb30c1a"},"tasks":{"$":"aa02e830e3ea0ee2cbb684958c1f5098"},"workflows":{"w":{"$":"14f29fdd1953b6f0a4861c4bd8b3a646"}}}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000021','89014d9aa5c1f15e489c11ae11f1d8e4','{"id":"op_01HF7YAT00NZXJBPTDV0RP4HJV","token_id":"tok_01HF7YAT004164CTVK6Y7WG26G","execution_id":"exec_01HF7YAT00XMXGBZ65XYWXY2AP","node_id":"a","run_id":"run_01HF7YAT000000000000000021","ordinal":1,"input":{"$":"2dadd16f10ccc8ee106cd68cd500c149"},"child_run_id":"","dispatches":1,"timeout_ms":0,"wake_ms":0,"repeatable":true,"created_ms":1700000000000}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000021','96770b2607d2fd0ec17a182470d6c140','{"id":"tok_01HF7YAT004164CTVK6Y7WG26G","run_id":"run_01HF7YAT000000000000000021","node_id":"a","status":"waiting_for_task","created_ms":1700000000000,"updated_ms":1700000000000}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000021','a89a8f76018a15f1bcd67cdbbdb30c1a','{"nodes":[{"id":"a","task_id":"t","workflow_id":"","input_mapping":{},"output_mapping":{},"timeout_ms":0,"description":""}],"transitions":[],"initial_node_id":"a","input_schema":{},"output_schema":{},"output_mapping":{},"timeout_ms":0}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000021','aa02e830e3ea0ee2cbb684958c1f5098','{"t":{"pin":{"definition_id":"def_t","library":"team","name":"t","revision":1},"spec":{"$":"bbdc7dd929cd7f12bd2ae602befb0cf9"}},"once":{"pin":{"definition_id":"def_once","library":"team","name":"once","revision":1},"spec":{"$":"4166c5e266d80973ebf70408e5a176be"}}}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000021','bbdc7dd929cd7f12bd2ae602befb0cf9','{"steps":[{"$":"001ee16cd5c9c094fff936de08210a3f"}],"input_schema":{},"output_schema":{},"retry":{"max_attempts":1,"backoff_ms":1000,"timeout_ms":60000}}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000021','ea6e2b231fa6e09ccdc45232f848da87','["StartRun",{"run":{"$":"08560c4b16266fb9373e398dc9d54c6d"},"pinned":{"run_id":"run_01HF7YAT000000000000000021","workflow":{"$":"6700e51ba29fb2caa3c67d61707b7a4a"}}}]');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000021','ed698b1914d784610e883249b1d6ca5c','{"run_id":"run_01HF7YAT000000000000000021","workflow":{"$":"6700e51ba29fb2caa3c67d61707b7a4a"},"input":{"$":"2dadd16f10ccc8ee106cd68cd500c149"},"scope":{"project_id":"proj_1","agent_id":"","conversation_id":"","turn_id":"","run_id":"","key":""},"parent":null,"volatile":false}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000031','001ee16cd5c9c094fff936de08210a3f','{"id":"s","action_id":"","action":{"kind":"context","config":{},"timeout_ms":30000,"max_attempts":3,"backoff_ms":100},"condition":"","input_mapping":{},"output_mapping":{},"on_failure":"abort"}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000031','004b0fda696fa9fa66de8202650b21ae','{"id":"a","task_id":"t","workflow_id":"","input_mapping":{"n":"size(state) == 0 ? 0 : state.n"},"output_mapping":{"state.n":"result.n","output.last":"result.n"},"timeout_ms":5000,"description":""}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000031','008d20cc386bd3156de037fba53900e5','[{"from_node_id":"a","to_node_id":"c","condition":"state.n > 2","priority":1},{"from_node_id":"a","to_node_id":"b","condition":"","priority":2},{"from_node_id":"b","to_node_id":"a","condition":"","priority":0}]');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000031','07afcbfdb5c21740b4c8a6ac1235d76e','{"id":"exec_01HF7YAT0063381F8D9P532CFV","run_id":"run_01HF7YAT000000000000000031","ordinal":1,"node_id":"a","status":"completed","output":{"$":"9dff0430203c2f60935b823201b3c755"},"fault":null,"started_ms":1700000000000,"completed_ms":1700000000000}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000031','0e6eddfe6f54ba559e019548e0f4a6d2','{"nodes":{"$":"bbfeb90fd4d4e440737b1f53590329d0"},"transitions":{"$":"008d20cc386bd3156de037fba53900e5"},"initial_node_id":"a","input_schema":{},"output_schema":{},"output_mapping":{},"timeout_ms":0}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000031','14f29fdd1953b6f0a4861c4bd8b3a646','{"pin":{"definition_id":"def_w","library":"team","name":"w","revision":1},"spec":{"$":"47949b25b9bfd5c8ea5389ae6505181a"},"tasks":{"t":{"pin":{"definition_id":"def_t","library":"team","name":"t","revision":1},"spec":{"$":"bbdc7dd929cd7f12bd2ae602befb0cf9"}}},"workflows":{}}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000031','1864d0917dde32431c40c22656c0837e','{"id":"s","action_id":"","action":{"kind":"shell","config":{},"timeout_ms":30000,"max_attempts":3,"backoff_ms":100},"condition":"","input_mapping":{},"output_mapping":{},"on_failure":"abort"}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000031','1d1b0baabfb1329ab77ddab50b6dc1ad','{"run_id":"run_01HF7YAT000000000000000031","workflow":{"$":"937c321d43848b38b25badcbe94f2e42"},"input":{"$":"6251c83d8d253f70ab336917a8ef6ad9"},"scope":{"project_id":"proj_1","agent_id":"","conversation_id":"","turn_id":"","run_id":"","key":""},"parent":null,"volatile":false}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000031','243349cd76a926611a8107137bac0959','["StartRun",{"run":{"$":"dab918ffb32f9254a36d1e9bd9c7cd64"},"pinned":{"run_id":"run_01HF7YAT000000000000000031","workflow":{"$":"937c321d43848b38b25badcbe94f2e42"}}}]');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000031','2d0264afa7fd6e615a1e49fefed2e506','{"id":"op_01HF7YAT00WSX5BYW5BJZNBA09","token_id":"tok_01HF7YAT002PT5N31HRZWC9DK5","execution_id":"exec_01HF7YAT00NQCMHGQFWJVKTZHJ","node_id":"c","run_id":"run_01HF7YAT000000000000000031","ordinal":2,"input":{"$":"6251c83d8d253f70ab336917a8ef6ad9"},"child_run_id":"","dispatches":1,"timeout_ms":0,"wake_ms":0,"repeatable":false,"created_ms":1700000000000}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000031','3de6d6b593b2ee58779b27658426d54d','{"id":"tok_01HF7YAT002PT5N31HRZWC9DK5","run_id":"run_01HF7YAT000000000000000031","node_id":"a","status":"waiting_for_task","created_ms":1700000000000,"updated_ms":1700000000000}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000031','4166c5e266d80973ebf70408e5a176be','{"steps":[{"$":"1864d0917dde32431c40c22656c0837e"}],"input_schema":{},"output_schema":{},"retry":{"max_attempts":1,"backoff_ms":1000,"timeout_ms":60000}}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000031','47949b25b9bfd5c8ea5389ae6505181a','{"nodes":[{"id":"n","task_id":"t","workflow_id":"","input_mapping":{},"output_mapping":{},"timeout_ms":0,"description":""}],"transitions":[],"initial_node_id":"n","input_schema":{},"output_schema":{},"output_mapping":{},"timeout_ms":0}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000031','5fdec5ba18cd2d302cae22466d3ca16e','{"id":"exec_01HF7YAT0063381F8D9P532CFV","run_id":"run_01HF7YAT000000000000000031","ordinal":1,"node_id":"a","status":"running","output":null,"fault":null,"started_ms":1700000000000,"completed_ms":0}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000031','6251c83d8d253f70ab336917a8ef6ad9','{"n":3,"big":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000031','937c321d43848b38b25badcbe94f2e42','{"pin":{"definition_id":"def_graph","library":"team","name":"graph","revision":1},"spec":{"$":"0e6eddfe6f54ba559e019548e0f4a6d2"},"tasks":{"$":"aa02e830e3ea0ee2cbb684958c1f5098"},"workflows":{"w":{"$":"14f29fdd1953b6f0a4861c4bd8b3a646"}}}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000031','9dff0430203c2f60935b823201b3c755','{"n":3,"pad":"yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000031','aa02e830e3ea0ee2cbb684958c1f5098','{"t":{"pin":{"definition_id":"def_t","library":"team","name":"t","revision":1},"spec":{"$":"bbdc7dd929cd7f12bd2ae602befb0cf9"}},"once":{"pin":{"definition_id":"def_once","library":"team","name":"once","revision":1},"spec":{"$":"4166c5e266d80973ebf70408e5a176be"}}}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000031','bbdc7dd929cd7f12bd2ae602befb0cf9','{"steps":[{"$":"001ee16cd5c9c094fff936de08210a3f"}],"input_schema":{},"output_schema":{},"retry":{"max_attempts":1,"backoff_ms":1000,"timeout_ms":60000}}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000031','bbfeb90fd4d4e440737b1f53590329d0','[{"$":"004b0fda696fa9fa66de8202650b21ae"},{"id":"b","task_id":"","workflow_id":"w","input_mapping":{},"output_mapping":{"state.seen":"true"},"timeout_ms":0,"description":""},{"id":"c","task_id":"once","workflow_id":"","input_mapping":{},"output_mapping":{},"timeout_ms":0,"description":""}]');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000031','bcf2b4420f219c23956bd5d993205d25','{"id":"op_01HF7YAT000HWH79TSP9C17554","token_id":"tok_01HF7YAT002PT5N31HRZWC9DK5","execution_id":"exec_01HF7YAT0063381F8D9P532CFV","node_id":"a","run_id":"run_01HF7YAT000000000000000031","ordinal":1,"input":{"n":0},"child_run_id":"","dispatches":1,"timeout_ms":5000,"wake_ms":1700000005000,"repeatable":true,"created_ms":1700000000000}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000031','d6acec3c4d15b44a507ceae01809dd5d','{"id":"tok_01HF7YAT002PT5N31HRZWC9DK5","run_id":"run_01HF7YAT000000000000000031","node_id":"c","status":"waiting_for_task","created_ms":1700000000000,"updated_ms":1700000000000}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000031','dab918ffb32f9254a36d1e9bd9c7cd64','{"id":"run_01HF7YAT000000000000000031","workflow_ref":"team/graph@1","workflow_id":"def_graph","scope":{"project_id":"proj_1","agent_id":"","conversation_id":"","turn_id":"","run_id":"run_01HF7YAT000000000000000031","key":""},"parent":null,"volatile":false,"status":"running","input":{"$":"6251c83d8d253f70ab336917a8ef6ad9"},"output":{},"fault":null,"executions":0,"version":1,"created_ms":1700000000000,"completed_ms":0}');
INSERT INTO "parts" VALUES('run_01HF7YAT000000000000000031','ed033c437133a54c43f6e45d2e425d6a','{"id":"exec_01HF7YAT00NQCMHGQFWJVKTZHJ","run_id":"run_01HF7YAT000000000000000031","ordinal":2,"node_id":"c","status":"running","output":null,"fault":null,"started_ms":1700000000000,"completed_ms":0}');
CREATE TABLE requests (
    actor      TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    parent     TEXT    NOT NULL,
    ordinal    INTEGER NOT NULL,
    status     TEXT    NOT NULL,
    alias      TEXT    NOT NULL,
    live       INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    data       TEXT    NOT NULL,
    PRIMARY KEY (actor, id)
);
CREATE TABLE requests_answered (
    scope       TEXT NOT NULL,
    id          TEXT NOT NULL,
    actor       TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    answer      TEXT NOT NULL,
    PRIMARY KEY (scope, id)
) WITHOUT ROWID;
CREATE TABLE runs (
    actor      TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    parent     TEXT    NOT NULL,
    ordinal    INTEGER NOT NULL,
    status     TEXT    NOT NULL,
    alias      TEXT    NOT NULL,
    live       INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    data       TEXT    NOT NULL,
    PRIMARY KEY (actor, id)
);
INSERT INTO "runs" VALUES('run_01HF7YAT000000000000000011','run_01HF7YAT000000000000000011','conv_01HF7YAT0000000000000000A1',0,'completed','',1,1700000000000,'{"id":"run_01HF7YAT000000000000000011","workflow_ref":"team/graph@1","workflow_id":"def_graph","scope":{"$":"55589452a544dbb66d2d92e192e31198"},"parent":null,"volatile":false,"status":"completed","input":{"$":"8e19770421e591c4e8c0f723ceedb701"},"output":{},"fault":null,"executions":1,"version":1,"created_ms":1700000000000,"completed_ms":1700000000000}');
INSERT INTO "runs" VALUES('run_01HF7YAT000000000000000021','run_01HF7YAT000000000000000021','',0,'running','',1,1700000000000,'{"id":"run_01HF7YAT000000000000000021","workflow_ref":"team/graph@1","workflow_id":"def_graph","scope":{"project_id":"proj_1","agent_id":"","conversation_id":"","turn_id":"","run_id":"run_01HF7YAT000000000000000021","key":""},"parent":null,"volatile":false,"status":"running","input":{"$":"2dadd16f10ccc8ee106cd68cd500c149"},"output":{},"fault":null,"executions":1,"version":1,"created_ms":1700000000000,"completed_ms":0}');
INSERT INTO "runs" VALUES('run_01HF7YAT000000000000000031','run_01HF7YAT000000000000000031','',0,'running','',1,1700000000000,'{"id":"run_01HF7YAT000000000000000031","workflow_ref":"team/graph@1","workflow_id":"def_graph","scope":{"project_id":"proj_1","agent_id":"","conversation_id":"","turn_id":"","run_id":"run_01HF7YAT000000000000000031","key":""},"parent":null,"volatile":false,"status":"running","input":{"$":"6251c83d8d253f70ab336917a8ef6ad9"},"output":{},"fault":null,"executions":2,"version":1,"created_ms":1700000000000,"completed_ms":0}');
CREATE TABLE tokens (
    actor      TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    parent     TEXT    NOT NULL,
    ordinal    INTEGER NOT NULL,
    status     TEXT    NOT NULL,
    alias      TEXT    NOT NULL,
    live       INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    data       TEXT    NOT NULL,
    PRIMARY KEY (actor, id)
);
INSERT INTO "tokens" VALUES('run_01HF7YAT000000000000000011','tok_01HF7YAT004NGZ0FKPKK9NAZM7','',0,'completed','',0,1700000000000,'{"id":"tok_01HF7YAT004NGZ0FKPKK9NAZM7","run_id":"run_01HF7YAT000000000000000011","node_id":"a","status":"completed","created_ms":1700000000000,"updated_ms":1700000000000}');
INSERT INTO "tokens" VALUES('run_01HF7YAT000000000000000021','tok_01HF7YAT004164CTVK6Y7WG26G','',0,'waiting_for_task','',1,1700000000000,'{"id":"tok_01HF7YAT004164CTVK6Y7WG26G","run_id":"run_01HF7YAT000000000000000021","node_id":"a","status":"waiting_for_task","created_ms":1700000000000,"updated_ms":1700000000000}');
INSERT INTO "tokens" VALUES('run_01HF7YAT000000000000000031','tok_01HF7YAT002PT5N31HRZWC9DK5','',0,'waiting_for_task','',1,1700000000000,'{"id":"tok_01HF7YAT002PT5N31HRZWC9DK5","run_id":"run_01HF7YAT000000000000000031","node_id":"c","status":"waiting_for_task","created_ms":1700000000000,"updated_ms":1700000000000}');
CREATE TABLE turns (
    actor      TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    parent     TEXT    NOT NULL,
    ordinal    INTEGER NOT NULL,
    status     TEXT    NOT NULL,
    alias      TEXT    NOT NULL,
    live       INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    data       TEXT    NOT NULL,
    PRIMARY KEY (actor, id)
);
CREATE TABLE works (
    actor      TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    parent     TEXT    NOT NULL,
    ordinal    INTEGER NOT NULL,
    status     TEXT    NOT NULL,
    alias      TEXT    NOT NULL,
    live       INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    data       TEXT    NOT NULL,
    PRIMARY KEY (actor, id)
);
INSERT INTO "works" VALUES('run_01HF7YAT000000000000000021','run_01HF7YAT000000000000000021','',0,'','',1,0,'{"run_id":"run_01HF7YAT000000000000000021","workflow":{"$":"6700e51ba29fb2caa3c67d61707b7a4a"}}');
INSERT INTO "works" VALUES('run_01HF7YAT000000000000000031','run_01HF7YAT000000000000000031','',0,'','',1,0,'{"run_id":"run_01HF7YAT000000000000000031","workflow":{"$":"937c321d43848b38b25badcbe94f2e42"}}');
CREATE INDEX conversations_by_time ON conversations (created_ms, id);
CREATE INDEX conversations_by_reference ON conversations (alias) WHERE alias <> '';
CREATE INDEX turns_by_id ON turns (id);
CREATE INDEX turns_by_order ON turns (actor, ordinal);
CREATE INDEX turns_by_status ON turns (actor, status);
CREATE INDEX turns_by_time ON turns (created_ms, id);
CREATE INDEX messages_by_id ON messages (id);
CREATE INDEX messages_by_order ON messages (actor, ordinal);
CREATE INDEX messages_by_turn ON messages (actor, parent);
CREATE INDEX moves_by_turn ON moves (actor, parent, ordinal);
CREATE INDEX runs_by_time ON runs (created_ms, id);
CREATE INDEX executions_by_order ON executions (actor, ordinal);
CREATE INDEX operations_live ON operations (actor) WHERE live = 1;
CREATE INDEX events_by_time ON events (at_ms, actor, sequence);
COMMIT;
