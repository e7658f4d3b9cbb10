-- Tasks. `body` is the whole A2A Task as protobuf; the other columns are what lists and recovery ask for.
CREATE TABLE tasks (
    id TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL,
    context_id TEXT NOT NULL,
    state INTEGER NOT NULL,
    is_open INTEGER NOT NULL,
    updated_at INTEGER NOT NULL, -- nanoseconds since the epoch, of the status
    body BLOB NOT NULL
) STRICT;

-- The last two columns let filters be decided without touching the rows, whose bodies are large.
CREATE INDEX tasks_of_owner ON tasks (owner, updated_at DESC, id DESC, state, context_id);
CREATE INDEX tasks_open ON tasks (updated_at, id) WHERE is_open = 1;

-- Which messages were accepted: one row a caller and message id, for as long as its task lives (A7).
CREATE TABLE messages (
    owner TEXT NOT NULL,
    message_id TEXT NOT NULL,
    digest BLOB NOT NULL,
    task_id TEXT NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    PRIMARY KEY (owner, message_id)
) STRICT, WITHOUT ROWID;

-- Conversations. The handle is `k` and the number, which is never given out again.
CREATE TABLE conversations (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL,
    context_id TEXT NOT NULL,
    session_id TEXT NOT NULL DEFAULT '',
    agent TEXT NOT NULL DEFAULT '',
    session_at REAL NOT NULL DEFAULT 0, -- when the session was made
    UNIQUE (owner, context_id)
) STRICT;

CREATE TABLE questions (
    number INTEGER PRIMARY KEY AUTOINCREMENT, -- the order of asking
    id TEXT NOT NULL UNIQUE,
    task_id TEXT NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    context_id TEXT NOT NULL,
    starter TEXT NOT NULL,
    starter_name TEXT NOT NULL,
    action TEXT NOT NULL,  -- JSON of core.model.Action
    options TEXT NOT NULL, -- JSON list of core.model.Option
    created_at REAL NOT NULL,
    expires_at REAL NOT NULL,
    state TEXT NOT NULL,
    answered_by TEXT NOT NULL,
    option_id TEXT NOT NULL,
    reason TEXT NOT NULL
) STRICT;

CREATE INDEX questions_pending ON questions (task_id) WHERE state = 'pending';

-- Further callers. A revoked name stays, because its tasks do.
CREATE TABLE pairings (
    name TEXT NOT NULL PRIMARY KEY COLLATE NOCASE,
    role TEXT NOT NULL,
    digest BLOB NOT NULL UNIQUE,
    created_at REAL NOT NULL,
    last_used_at REAL,
    revoked_at REAL
) STRICT;
