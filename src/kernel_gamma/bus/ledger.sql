-- Every statement of the ledger. One block: its name, a sentence, the SQL.

-- name: fence
-- The boot number that may write.
SELECT value FROM meta WHERE key = 'boot';

-- name: get_meta
-- One fact about the ledger itself.
SELECT value FROM meta WHERE key = ?;

-- name: set_meta
-- Keep one fact about the ledger itself.
INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: last_seq
-- The newest number given to a file.
SELECT coalesce(max(seq), 0) FROM files;

-- name: add_file
-- A queue file enters the books.
INSERT INTO files (seq, queue, name, path, origin, state, trust, file_id, trace_id, session_key,
                   accepted_at, expires_at, commit_n)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: add_delivery
-- A node is to see a file.
INSERT OR IGNORE INTO deliveries (node, seq) VALUES (?, ?);

-- name: add_lookup
-- Another id under which a file is found by `kgamma trace`.
INSERT OR IGNORE INTO lookup (id, seq) VALUES (?, ?);

-- name: known_name
-- The file of this name that is still in its queue, or is just leaving it.
SELECT seq FROM files WHERE queue = ? AND name = ? AND state IN ('live', 'leaving') LIMIT 1;

-- name: file_state
-- Whether a file has left its queue.
SELECT state FROM files WHERE queue = ? AND name = ? ORDER BY seq DESC LIMIT 1;

-- name: live_files
-- Files in the books that should stand in their queues.
SELECT seq, queue, name, path, origin FROM files WHERE state = 'live' ORDER BY seq;

-- name: live_file_nodes
-- The nodes that have a delivery of a file.
SELECT node FROM deliveries WHERE seq = ?;

-- name: leave_file
-- A file begins to leave its queue.
UPDATE files SET state = 'leaving', final = ?, outcome = ? WHERE seq = ?;

-- name: left_file
-- A file has left its queue.
UPDATE files SET state = 'gone' WHERE seq = ?;

-- name: left_path
-- The file that was to leave to this path has left.
UPDATE files SET state = 'gone' WHERE final = ? AND state = 'leaving';

-- name: file_by_seq
-- One file's row.
SELECT seq, queue, name, path, origin, trace_id, state FROM files WHERE seq = ?;

-- name: open_deliveries
-- What waits for a node, in the order of acceptance, from a number on.
SELECT d.seq, d.status, d.attempts, d.deaths, d.next_try, d.solo, d.batch_id,
       f.queue, f.name, f.path, f.origin, f.trust, f.accepted_at, f.expires_at
FROM deliveries d JOIN files f ON f.seq = d.seq
WHERE d.node = ? AND d.seq > ? AND d.status IN ('waiting', 'running', 'retry') AND f.state = 'live'
ORDER BY d.seq LIMIT ?;

-- name: count_open
-- How much waits for a node.
SELECT count(*) FROM deliveries WHERE node = ? AND status IN ('waiting', 'running', 'retry');

-- name: running
-- Deliveries that were in flight when the last process ended.
SELECT node, seq, batch_id, deaths, attempts, solo FROM deliveries WHERE status = 'running' ORDER BY batch_id, seq;

-- name: start_delivery
-- A delivery is in flight, as a member of a batch.
UPDATE deliveries SET status = 'running', batch_id = ?, started_at = ? WHERE node = ? AND seq = ?;

-- name: release_delivery
-- A delivery goes back to the queue without an attempt.
UPDATE deliveries SET status = 'waiting', next_try = NULL, solo = ?, error = ?, batch_id = ?
WHERE node = ? AND seq = ?;

-- name: suspect_delivery
-- The process died while this delivery was in flight.
UPDATE deliveries SET status = 'waiting', deaths = ?, solo = ?, batch_id = ? WHERE node = ? AND seq = ?;

-- name: retry_delivery
-- An attempt failed; there will be another.
UPDATE deliveries SET status = 'retry', attempts = ?, next_try = ?, error = ?, solo = 1, batch_id = NULL
WHERE node = ? AND seq = ?;

-- name: close_delivery
-- A node is through with a file.
UPDATE deliveries SET status = ?, ended_at = ?, error = coalesce(?, error), attempts = ? WHERE node = ? AND seq = ?;

-- name: delivery_status
-- How a node stands with a file.
SELECT status, batch_id FROM deliveries WHERE node = ? AND seq = ?;

-- name: still_open
-- Nodes that are not through with a file.
SELECT count(*) FROM deliveries WHERE seq = ? AND status IN ('waiting', 'running', 'retry');

-- name: any_dead
-- Whether any node gave a file up.
SELECT node, error, attempts FROM deliveries WHERE seq = ? AND status = 'dead' LIMIT 1;

-- name: add_missing_deliveries
-- A node that joined the topology sees what still stands in its queues.
SELECT seq, queue, name FROM files WHERE state = 'live'
AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.seq = files.seq AND d.node = ?);

-- name: orphan_deliveries
-- Open deliveries of nodes that are not in the topology.
SELECT DISTINCT node FROM deliveries WHERE status IN ('waiting', 'running', 'retry');

-- name: orphan_files
-- Files an absent node never finished.
SELECT seq FROM deliveries WHERE node = ? AND status IN ('waiting', 'running', 'retry');

-- name: commit_of_batch
-- Whether a batch has been committed.
SELECT n FROM commits WHERE batch_id = ?;

-- name: add_commit
-- The point of no return: everything needed to redo an Outcome.
INSERT INTO commits (n, batch_id, node, trace_id, at, plan, outputs) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: commit_applied
-- The effects stand on disk.
UPDATE commits SET applied = 1 WHERE n = ?;

-- name: forget_applied
-- Without power-cut safety an applied commit need not be redone: forget its bytes.
UPDATE commits SET applied = 1, synced = 1, plan = NULL WHERE n = ?;

-- name: commits_synced
-- The effects survive a power cut: forget the bytes.
UPDATE commits SET synced = 1, plan = NULL WHERE applied = 1 AND synced = 0 AND n <= ?;

-- name: unapplied
-- Commits to redo after a crash of the process, oldest first.
SELECT n, plan FROM commits WHERE applied = 0 ORDER BY n;

-- name: unsynced
-- Commits to redo after a reboot, oldest first.
SELECT n, plan FROM commits WHERE synced = 0 ORDER BY n;

-- name: last_commit
-- The newest commit.
SELECT coalesce(max(n), 0) FROM commits;

-- name: add_passage
-- A passage and what caused it; the cause never stands in the Markdown.
INSERT INTO passages (passage_id, commit_n, page, offset, length, sha256, heading, kind, at, batch_id, trace_id, block)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: same_passages
-- How many passages with exactly these bytes there are.
SELECT count(*) FROM passages WHERE sha256 = ?;

-- name: passage
-- Where a passage was put.
SELECT passage_id, page, offset, length, sha256, heading FROM passages WHERE passage_id = ?;

-- name: recent_passages
-- Passages young enough to be put back after a foreign save.
SELECT passage_id, block FROM passages WHERE at >= ? AND put_back = 0 AND block IS NOT NULL ORDER BY rowid;

-- name: put_back
-- A passage is put back at most once.
UPDATE passages SET put_back = 1 WHERE passage_id = ?;

-- name: forget_blocks
-- Old passages are not put back: their text stays in the Markdown alone.
UPDATE passages SET block = NULL WHERE at < ? AND block IS NOT NULL;

-- name: add_claim
-- Remember a dedupe key, if it is not remembered already.
INSERT INTO claims (key, value, expires_at) VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at
WHERE claims.expires_at <= ?;

-- name: claim
-- What was claimed under a key.
SELECT value FROM claims WHERE key = ? AND expires_at > ?;

-- name: drop_claims
-- Forget keys past their time.
DELETE FROM claims WHERE expires_at <= ?;

-- name: journal_result
-- What a step of a batch came to, if it was started.
SELECT ended_at, result FROM journal WHERE batch_id = ? AND step = ?;

-- name: journal_intent
-- A step is about to run.
INSERT INTO journal (batch_id, step, node, kind, trace_id, started_at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (batch_id, step) DO UPDATE SET started_at = excluded.started_at, ended_at = NULL;

-- name: journal_done
-- A step has run.
UPDATE journal SET ended_at = ?, result = ?, day = ?, role = ?, model = ?, prompt_tokens = ?,
       completion_tokens = ?, cached_tokens = ?, cost = ? WHERE batch_id = ? AND step = ?;

-- name: tokens_on
-- Tokens of one local day.
SELECT coalesce(sum(prompt_tokens + completion_tokens), 0) FROM journal WHERE day = ?;

-- name: status_counts
-- Deliveries by node and status.
SELECT node, status, count(*) FROM deliveries WHERE status IN ('waiting', 'running', 'retry') GROUP BY node, status;

-- name: trace_files
-- Files of a trace, or with an id of their own.
SELECT seq FROM files WHERE trace_id = ? OR file_id = ?
UNION SELECT seq FROM lookup WHERE id = ?
UNION SELECT f.seq FROM files f JOIN passages p ON p.commit_n = f.commit_n WHERE p.passage_id = ?;

-- name: trace_file
-- Everything about one file.
SELECT seq, queue, name, path, origin, state, trust, file_id, trace_id, session_key, accepted_at, commit_n,
       final, outcome FROM files WHERE seq = ?;

-- name: trace_deliveries
-- What the nodes did with a file.
SELECT node, status, batch_id, attempts, deaths, next_try, error, started_at, ended_at
FROM deliveries WHERE seq = ?;

-- name: trace_commit
-- One commit and what it wrote.
SELECT n, batch_id, node, at, applied, outputs FROM commits WHERE n = ?;

-- name: trace_commit_of_batch
-- The commit of a batch and what it wrote.
SELECT n, batch_id, node, at, applied, outputs FROM commits WHERE batch_id = ?;

-- name: trace_children
-- Files a commit emitted.
SELECT seq FROM files WHERE commit_n = ?;

-- name: trace_batch_members
-- Files that were handled together.
SELECT DISTINCT seq FROM deliveries WHERE batch_id = ?;

-- name: trace_steps
-- Model calls and tool runs of a batch.
SELECT step, kind, started_at, ended_at, role, model, prompt_tokens, completion_tokens, cached_tokens, cost, result
FROM journal WHERE batch_id = ?;

-- name: trace_passages
-- Passages a commit added.
SELECT passage_id, page, offset, length, heading, kind FROM passages WHERE commit_n = ?;

-- name: release_running
-- An orderly stop: nothing is in flight any more.
UPDATE deliveries SET status = 'waiting' WHERE status = 'running';
