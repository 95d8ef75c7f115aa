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

-- name: standing_file
-- The file that the books know at this very place: one of this name in inbox/taken/ is another.
SELECT seq FROM files WHERE name = ? AND queue = ? AND path = ? AND state = 'live' LIMIT 1;

-- name: file_state
-- Whether a file has left its queue.
SELECT state FROM files WHERE name = ? AND queue = ? ORDER BY seq DESC LIMIT 1;

-- name: live_files
-- Files in the books that should stand in their queues.
SELECT seq, queue, name, path, origin FROM files
WHERE seq IN (SELECT seq FROM deliveries WHERE status IN ('waiting', 'retry')) ORDER BY seq;

-- name: live_file_nodes
-- The nodes that are not through with a file.
SELECT node FROM deliveries WHERE seq = ? AND status IN ('waiting', 'retry');

-- name: leave_file
-- A file begins to leave its queue.
UPDATE files SET state = 'left', final = ?, outcome = ? WHERE seq = ?;

-- name: file_by_seq
-- One file's row.
SELECT seq, queue, name, path, origin, trace_id, state FROM files WHERE seq = ?;

-- name: open_deliveries
-- What waits for a node, in the order of acceptance, from a number on.
SELECT d.seq, d.status, d.attempts, d.deaths, d.next_try, d.solo, d.batch_id,
       f.queue, f.name, f.path, f.origin, f.trust, f.accepted_at, f.expires_at
FROM deliveries d JOIN files f ON f.seq = d.seq
WHERE d.node = ? AND d.seq > ? AND d.status IN ('waiting', 'retry') AND f.state = 'live'
ORDER BY d.seq LIMIT ?;

-- name: count_open
-- How much waits for a node.
SELECT count(*) FROM deliveries WHERE node = ? AND status IN ('waiting', 'retry');

-- name: release_delivery
-- A delivery goes back to the queue without an attempt.
UPDATE deliveries SET status = 'waiting', next_try = NULL, solo = ?, error = ?, batch_id = ?
WHERE node = ? AND seq = ? AND status IN ('waiting', 'retry');

-- name: suspect_delivery
-- The process died while this delivery was in flight.
UPDATE deliveries SET status = 'waiting', next_try = NULL, deaths = ?, waits = ?, solo = ?, batch_id = ?
WHERE node = ? AND seq = ?;

-- name: retry_delivery
-- An attempt failed; there will be another.
UPDATE deliveries SET status = 'retry', attempts = ?, next_try = ?, error = ?, solo = 1, batch_id = NULL
WHERE node = ? AND seq = ?;

-- name: close_delivery
-- A node is through with a file.
UPDATE deliveries SET status = ?, ended_at = ?, error = coalesce(?, error), attempts = ? WHERE node = ? AND seq = ?;

-- name: land_delivery
-- A batch is through with a file.
UPDATE deliveries SET status = ?, ended_at = ?, error = coalesce(?, error), attempts = ?, batch_id = ?,
       started_at = ? WHERE node = ? AND seq = ?;

-- name: delivery_in_the_air
-- How a delivery stood when the last process ended, unless it was through.
SELECT seq, deaths, waits, solo FROM deliveries WHERE node = ? AND seq = ? AND status IN ('waiting', 'retry');

-- name: delivery_status
-- How a node stands with a file.
SELECT status, batch_id FROM deliveries WHERE node = ? AND seq = ?;

-- name: still_open
-- Nodes that are not through with a file.
SELECT count(*) FROM deliveries WHERE seq = ? AND status IN ('waiting', 'retry');

-- name: any_dead
-- Whether any node gave a file up.
SELECT node, error, attempts FROM deliveries WHERE seq = ? AND status = 'dead' LIMIT 1;

-- name: add_missing_deliveries
-- A node that joined the topology sees what still stands in its queues.
SELECT seq, queue, name FROM files f
WHERE seq IN (SELECT seq FROM deliveries WHERE status IN ('waiting', 'retry'))
AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.seq = f.seq AND d.node = ?);

-- name: orphan_deliveries
-- Open deliveries of nodes that are not in the topology.
SELECT DISTINCT node FROM deliveries WHERE status IN ('waiting', 'retry');

-- name: orphan_files
-- Files an absent node never finished.
SELECT seq FROM deliveries WHERE node = ? AND status IN ('waiting', 'retry');

-- name: commit_of_batch
-- Whether a batch has been committed.
SELECT n FROM commits WHERE batch_id = ?;

-- name: add_commit
-- The point of no return: everything needed to redo an Outcome.
INSERT INTO commits (n, batch_id, node, trace_id, at, plan, members, files, passages, outputs)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: commit_applied
-- The effects stand on disk.
UPDATE commits SET applied = 1 WHERE n = ?;

-- name: forget_applied
-- Without power-cut safety an applied commit need not be redone: forget its bytes.
UPDATE commits SET applied = 1, synced = 1, plan = NULL WHERE n = ?;

-- name: commits_synced
-- The effects survive a power cut: forget the bytes.
UPDATE commits SET synced = 1, plan = NULL WHERE synced = 0 AND applied = 1 AND n <= ?;

-- name: unapplied
-- Commits to redo after a crash of the process, oldest first.
SELECT n, plan FROM commits WHERE synced = 0 AND applied = 0 ORDER BY n;

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

-- name: passage
-- Where a passage was put.
SELECT passage_id, page, offset, length, sha256, heading FROM passages WHERE passage_id = ?;

-- name: recent_passages
-- Passages young enough to be put back after a foreign save, if they are known to have stood.
SELECT passage_id, block FROM passages JOIN commits ON n = commit_n
WHERE passage_id >= ? AND put_back = 0 AND block IS NOT NULL AND applied = 1 ORDER BY passage_id;

-- name: put_back
-- A passage is put back at most once.
UPDATE passages SET put_back = 1 WHERE passage_id = ?;

-- name: forget_blocks
-- Old passages are not put back: their text stays in the Markdown alone.
UPDATE passages SET block = NULL WHERE passage_id >= ? AND passage_id < ? AND block IS NOT NULL;

-- name: add_claim
-- Remember a dedupe key, if it is not remembered already.
INSERT INTO claims (key, value, expires_at) VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at
WHERE claims.expires_at <= ?;

-- name: renew_claim
-- Remember this under a key, whatever was remembered.
INSERT INTO claims (key, value, expires_at) VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at;

-- name: claims_between
-- What was claimed under the keys from one up to another.
SELECT key, value FROM claims WHERE key >= ? AND key < ? AND expires_at > ? ORDER BY key;

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

-- name: add_usage
-- Sum up what a day's calls cost.
INSERT INTO usage (day, calls, prompt_tokens, completion_tokens, cost) VALUES (?, 1, ?, ?, ?)
ON CONFLICT (day) DO UPDATE SET calls = calls + 1, prompt_tokens = prompt_tokens + excluded.prompt_tokens,
       completion_tokens = completion_tokens + excluded.completion_tokens, cost = cost + excluded.cost;

-- name: add_spending
-- The same, by who asked and why.
INSERT INTO spending (day, node, role, rule, calls, prompt_tokens, completion_tokens, cached_tokens, cost)
VALUES (?, ?, ?, ?, 1, ?, ?, ?, ?)
ON CONFLICT (day, node, role, rule) DO UPDATE SET calls = calls + 1,
       prompt_tokens = prompt_tokens + excluded.prompt_tokens,
       completion_tokens = completion_tokens + excluded.completion_tokens,
       cached_tokens = cached_tokens + excluded.cached_tokens, cost = cost + excluded.cost;

-- name: spent_on
-- Tokens and money of one local day.
SELECT prompt_tokens + completion_tokens, cost FROM usage WHERE day = ?;

-- name: tokens_of_rule
-- Tokens of one local day that a rhythm rule's events led to.
SELECT coalesce(sum(prompt_tokens + completion_tokens), 0) FROM spending WHERE day = ? AND rule = ?;

-- name: spending_on
-- What one local day's calls cost, by node, role and rule.
SELECT node, role, rule, calls, prompt_tokens, completion_tokens, cached_tokens, cost FROM spending
WHERE day = ? ORDER BY prompt_tokens + completion_tokens DESC, node, role, rule;

-- name: usage_since
-- What the days from a day on cost, the newest first.
SELECT day, calls, prompt_tokens + completion_tokens, cost FROM usage WHERE day >= ? ORDER BY day DESC;

-- name: status_counts
-- Deliveries by node and status.
SELECT node, status, count(*) FROM deliveries WHERE status IN ('waiting', 'retry') GROUP BY node, status;

-- name: trace_files
-- Files of a trace, or with an id of their own.
SELECT seq FROM files WHERE trace_id = ? OR name = CAST(? || '.json' AS BLOB)
UNION SELECT seq FROM lookup WHERE id = ?
UNION SELECT made.value FROM passages p JOIN commits c ON c.n = p.commit_n, json_each(c.files) AS made
WHERE p.passage_id = ?;

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
SELECT made.value FROM commits c, json_each(c.files) AS made WHERE c.n = ?;

-- name: trace_batch_members
-- Files that were handled together.
SELECT member.value FROM commits c, json_each(c.members) AS member WHERE c.batch_id = ?1
UNION SELECT seq FROM deliveries WHERE status IN ('waiting', 'retry') AND batch_id = ?1;

-- name: trace_steps
-- Model calls and tool runs of a batch.
SELECT step, kind, started_at, ended_at, role, model, prompt_tokens, completion_tokens, cached_tokens, cost, result
FROM journal WHERE batch_id = ?;

-- name: trace_passages
-- Passages a commit added.
SELECT passage_id, page, offset, length, heading, kind FROM passages
WHERE passage_id IN (SELECT told.value FROM commits c, json_each(c.passages) AS told WHERE c.n = ?);

-- name: recent_shas
-- Bytes of the newest passages, to tell equal ones apart.
SELECT sha256 FROM passages WHERE passage_id >= ? ORDER BY passage_id;

-- name: trace_named
-- Files that were dropped or emitted under a name, oldest first.
SELECT seq FROM files WHERE name = ? ORDER BY seq LIMIT 100;

-- name: trace_output
-- The commit that wrote a file nobody in here watches, e.g. into the outbox.
SELECT batch_id FROM commits WHERE instr(outputs, ?) > 0 LIMIT 1;

-- name: trace_passage
-- The batch that added a passage.
SELECT c.batch_id FROM passages p JOIN commits c ON c.n = p.commit_n WHERE p.passage_id = ?;

-- name: trace_batch_of_commit
-- The batch a commit carried out.
SELECT batch_id FROM commits WHERE n = ?;

-- name: newest_commit_at
-- When the last commit was made.
SELECT at FROM commits ORDER BY n DESC LIMIT 1;

-- name: quick_check
-- Whether the file is sound: one row "ok", else what is broken.
PRAGMA quick_check(5);

-- name: gave_up
-- The nodes that gave a file up.
SELECT node FROM deliveries WHERE seq = ? AND status = 'dead';

-- name: newest_of_name
-- The newest file of a name in a queue, whatever became of it.
SELECT seq, origin, state, outcome, trust, final, sha256 FROM files
WHERE name = ? AND queue = ? ORDER BY seq DESC LIMIT 1;

-- name: keep_sha
-- The bytes of a file of the bus that is given up, so that it is known again.
UPDATE files SET sha256 = ? WHERE seq = ?;

-- name: drop_claim
-- A claim that is good for once.
DELETE FROM claims WHERE key = ?;

-- name: waiting_files
-- Files that some node is not through with, and the commits that made them.
SELECT seq, commit_n FROM files WHERE seq IN (SELECT seq FROM deliveries WHERE status IN ('waiting', 'retry'));

-- name: waiting_batches
-- Batches that will be handed over again unchanged.
SELECT DISTINCT batch_id FROM deliveries WHERE status IN ('waiting', 'retry') AND batch_id IS NOT NULL;

-- name: causes_of_commit
-- What a commit was made of.
SELECT batch_id, members FROM commits WHERE n = ?;

-- name: cause_of_file
-- The commit that made a file, and where the file went.
SELECT commit_n, final FROM files WHERE seq = ?;

-- name: accepted_when
-- When the newest file of a name was accepted.
SELECT accepted_at FROM files WHERE name = ? AND queue = ? ORDER BY seq DESC LIMIT 1;

-- name: walk_files
-- Files that have left and whose making need never be redone, in the order of their numbers, from one on.
SELECT seq, accepted_at, outcome, queue, name, final, sha256 FROM files WHERE seq > ? AND state = 'left'
AND NOT EXISTS (SELECT 1 FROM commits c WHERE c.n = files.commit_n AND c.synced = 0) ORDER BY seq LIMIT ?;

-- name: walk_commits
-- Commits that need never be redone, in order, from one on.
SELECT n, at FROM commits WHERE n > ? AND synced = 1 ORDER BY n LIMIT ?;

-- name: walk_passages
-- Passages by id, from one on.
SELECT passage_id, at, commit_n, heading FROM passages WHERE passage_id > ? ORDER BY passage_id LIMIT ?;

-- name: walk_steps
-- Model calls and tool runs, from one on.
SELECT batch_id, step, kind, started_at, result IS NULL FROM journal WHERE (batch_id, step) > (?, ?)
ORDER BY batch_id, step LIMIT ?;

-- name: walk_lookup
-- Other ids of files, from one on; whether the file is still in the books.
SELECT id, seq, EXISTS (SELECT 1 FROM files f WHERE f.seq = lookup.seq) FROM lookup WHERE (id, seq) > (?, ?)
ORDER BY id, seq LIMIT ?;

-- name: prune_file
-- A file that is through; not the newest, whose number is counted on, nor one whose making may be redone.
DELETE FROM files WHERE seq = ?1 AND state = 'left' AND seq < (SELECT max(seq) FROM files)
AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.seq = ?1 AND d.status IN ('waiting', 'retry'))
AND NOT EXISTS (SELECT 1 FROM commits c WHERE c.n = files.commit_n AND c.synced = 0);

-- name: prune_deliveries
-- Of a file that is not in the books any more.
DELETE FROM deliveries WHERE seq = ?1 AND NOT EXISTS (SELECT 1 FROM files WHERE seq = ?1);

-- name: prune_commit
-- A commit that stands and need never be redone; not the newest, whose number is counted on.
DELETE FROM commits WHERE n = ? AND synced = 1 AND n < (SELECT max(n) FROM commits);

-- name: prune_passage
-- Where a passage once was.
DELETE FROM passages WHERE passage_id = ?;

-- name: prune_step
-- A model call or tool run of a batch that is through.
DELETE FROM journal WHERE batch_id = ? AND step = ?;

-- name: forget_answer
-- The answer of a model goes, what it cost stays.
UPDATE journal SET result = NULL WHERE batch_id = ? AND step = ?;

-- name: prune_lookup
-- Another id of a file that is not in the books any more.
DELETE FROM lookup WHERE id = ? AND seq = ?;

-- name: free_pages
-- Pages of the file that hold nothing.
PRAGMA freelist_count;

-- name: give_back_page
-- One free page goes back to the file system; none in a ledger from before it could.
PRAGMA incremental_vacuum(1);

-- name: last_happening
-- The newest event or action that is not of the rhythm itself.
SELECT seq FROM files WHERE queue IN ('pipeline/message_queue', 'pipeline/action_queue')
AND coalesce(session_key, '') NOT LIKE 'rhythm:%' ORDER BY seq DESC LIMIT 1;

-- name: accepted_from
-- The first file of a number or a later one, and when it was accepted.
SELECT seq, accepted_at FROM files WHERE seq >= ? ORDER BY seq LIMIT 1;

-- name: flow_from
-- The newest files from a number on, with what the nodes did with them.
SELECT f.seq, f.queue, f.accepted_at, d.status, d.attempts, d.ended_at
FROM files f LEFT JOIN deliveries d ON d.seq = f.seq WHERE f.seq >= ? ORDER BY f.seq DESC LIMIT ?;

-- name: waiting_by_node
-- How much waits for each node, and since when.
SELECT d.node, count(*), min(f.accepted_at) FROM deliveries d JOIN files f ON f.seq = d.seq
WHERE d.status IN ('waiting', 'retry') GROUP BY d.node;

-- name: expired_by_node
-- What waits for each node although its time to live was over at a moment.
SELECT d.node, count(*) FROM deliveries d JOIN files f ON f.seq = d.seq
WHERE d.status IN ('waiting', 'retry') AND f.expires_at < ? GROUP BY d.node;
