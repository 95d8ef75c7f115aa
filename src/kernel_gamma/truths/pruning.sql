-- What may go from memory.db by its age. One block: its name, a sentence, the SQL.

-- name: due_truths
-- Standing truths of a category before a row and a moment that nothing holds: no lock, no link in the chain.
SELECT t.id, t.key, t.at FROM truths t
WHERE t.category = (SELECT id FROM prefixes WHERE name = ?1) AND t.id > ?2 AND t.id < ?3 AND t.at < ?4
  AND t.locked = 0 AND t.link IS NULL
  AND NOT EXISTS (SELECT 1 FROM versions v WHERE v.key = t.key AND v.link IS NOT NULL)
ORDER BY t.id LIMIT ?5;

-- name: due_versions
-- Old versions, as above, of truths that stand: with when the standing version is from.
SELECT v.id, v.key, v.at, t.at FROM versions v JOIN truths t ON t.key = v.key
WHERE v.category = (SELECT id FROM prefixes WHERE name = ?1) AND v.id > ?2 AND v.id < ?3 AND v.at < ?4
  AND t.locked = 0 AND v.link IS NULL
ORDER BY v.id LIMIT ?5;

-- name: drop_version
-- One old version goes.
DELETE FROM versions WHERE id = ? AND link IS NULL;
