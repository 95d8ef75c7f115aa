-- Every statement of memory.db. One block: its name, a sentence, the SQL.

-- name: get_meta
-- One fact about the store itself.
SELECT value FROM meta WHERE name = ?;

-- name: set_meta
-- Keep one fact about the store itself.
INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: last_id
-- The newest index row and the newest row of any kind between two ids.
SELECT max((SELECT coalesce(max(id), 0) FROM snippets WHERE id BETWEEN ?1 AND ?2),
           (SELECT coalesce(max(id), 0) FROM versions WHERE id BETWEEN ?1 AND ?2));

-- name: prefix_by_name
-- A folder of keys.
SELECT id, truths, last_seq, last_ms FROM prefixes WHERE name = ?;

-- name: add_prefix
-- A new folder of keys.
INSERT INTO prefixes (name) VALUES (?);

-- name: save_prefix
-- How many truths a folder holds, and where its row of neighbours ends.
UPDATE prefixes SET truths = ?2, last_seq = ?3, last_ms = ?4 WHERE id = ?1;

-- name: standing
-- The version of a key that stands, with all its columns.
SELECT id, version, locked, category, description, value, at, written, trust, level, link, snippets
FROM truths WHERE key = ?;

-- name: add_truth
-- A version begins to stand.
INSERT INTO truths (id, key, category, description, value, at, written, version, locked, trust, level, link,
                    snippets, fold)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: supersede
-- The standing version becomes an old one.
INSERT INTO versions (id, key, category, description, value, at, written, version, locked, trust, level, link)
SELECT id, key, category, description, value, at, written, version, locked, trust, level, link
FROM truths WHERE id = ?;

-- name: drop_truth
-- A standing version goes.
DELETE FROM truths WHERE id = ?;

-- name: drop_versions
-- Old versions of a key go.
DELETE FROM versions WHERE key = ?;

-- name: add_snippet
-- A row of the index: its place among its neighbours, which part of its truth it is, its length in words.
INSERT INTO snippets (id, place, part, length) VALUES (?, ?, ?, ?);

-- name: drop_snippets
-- The index rows of one truth go.
DELETE FROM snippets WHERE id BETWEEN ? AND ?;

-- name: add_words
-- The terms of an index row.
INSERT INTO words (rowid, text, who, cat) VALUES (?, ?, ?, ?);

-- name: drop_words
-- The terms of an index row go; they must be the ones that were put.
INSERT INTO words (words, rowid, text, who, cat) VALUES ('delete', ?, ?, ?, ?);

-- name: last_link
-- The end of the hash chain.
SELECT link, sha256 FROM chain ORDER BY link DESC LIMIT 1;

-- name: add_link
-- The chain grows by one.
INSERT INTO chain (link, id, sha256) VALUES (?, ?, ?);

-- name: lock
-- Whether a truth is locked.
UPDATE truths SET locked = ?2 WHERE key = ?1;

-- name: truth_by_key
-- The standing version, with its link and the one before.
SELECT t.*, c.sha256 AS sha256, p.sha256 AS prev_sha256 FROM truths t
LEFT JOIN chain c ON c.link = t.link LEFT JOIN chain p ON p.link = t.link - 1 WHERE t.key = ?;

-- name: versions_by_key
-- Old versions of a key, oldest first.
SELECT t.*, 0 AS snippets, 0 AS fold, c.sha256 AS sha256, p.sha256 AS prev_sha256 FROM versions t
LEFT JOIN chain c ON c.link = t.link LEFT JOIN chain p ON p.link = t.link - 1 WHERE t.key = ? ORDER BY t.version;

-- name: page_all
-- Truths, newest first.
SELECT t.*, c.sha256 AS sha256, p.sha256 AS prev_sha256 FROM truths t
LEFT JOIN chain c ON c.link = t.link LEFT JOIN chain p ON p.link = t.link - 1
ORDER BY t.id DESC LIMIT ? OFFSET ?;

-- name: page_category
-- Truths of one category, newest first.
SELECT t.*, c.sha256 AS sha256, p.sha256 AS prev_sha256 FROM truths t
LEFT JOIN chain c ON c.link = t.link LEFT JOIN chain p ON p.link = t.link - 1
WHERE t.category = ? ORDER BY t.id DESC LIMIT ? OFFSET ?;

-- name: page_prefix
-- Truths below a prefix (it ends with a dot), and the key of that very name, newest first.
SELECT t.*, c.sha256 AS sha256, p.sha256 AS prev_sha256 FROM truths t
LEFT JOIN chain c ON c.link = t.link LEFT JOIN chain p ON p.link = t.link - 1
WHERE (t.key >= ?1 AND t.key < ?2) OR t.key = substr(?1, 1, length(?1) - 1)
ORDER BY t.id DESC LIMIT ?3 OFFSET ?4;

-- name: count_prefix
-- How many truths lie below a prefix (it ends with a dot), with the key of that very name, to a bound.
SELECT count(*) FROM (
    SELECT 1 FROM truths WHERE (key >= ?1 AND key < ?2) OR key = substr(?1, 1, length(?1) - 1) LIMIT ?3);

-- name: categories
-- Every category and how many truths it holds.
SELECT name, truths FROM prefixes WHERE instr(name, '.') = 0 AND truths > 0 ORDER BY truths DESC, name;

-- name: prefix_ids
-- All folders of keys.
SELECT name, id FROM prefixes;

-- name: count_truths
-- How many truths stand.
SELECT coalesce(sum(truths), 0) FROM prefixes WHERE instr(name, '.') = 0;

-- name: chain
-- Every link with the record it is of, which may be an old version, or gone.
SELECT c.link, c.sha256, coalesce(t.key, v.key), coalesce(t.version, v.version),
       coalesce(t.description, v.description), coalesce(t.at, v.at), coalesce(t.value, v.value)
FROM chain c LEFT JOIN truths t ON t.id = c.id AND t.link = c.link
LEFT JOIN versions v ON v.id = c.id AND v.link = c.link ORDER BY c.link;

-- name: links_of
-- The links of all versions of a key: number, SHA-256, version.
SELECT c.link, c.sha256, r.version FROM (
    SELECT link, version FROM truths WHERE key = ?1 UNION ALL SELECT link, version FROM versions WHERE key = ?1
) r JOIN chain c ON c.link = r.link ORDER BY c.link;

-- name: tombstones
-- What sealed records of the category tombstone say, older versions too.
SELECT value FROM truths WHERE key > 'tombstone.' AND key < 'tombstone/' AND link IS NOT NULL
UNION ALL SELECT value FROM versions WHERE key > 'tombstone.' AND key < 'tombstone/' AND link IS NOT NULL;

-- name: unlinked
-- Records that say they are in the chain at a link the chain does not have.
SELECT key, link FROM truths WHERE link IS NOT NULL AND link > ?1
UNION ALL SELECT key, link FROM versions WHERE link IS NOT NULL AND link > ?1 LIMIT 1;

-- name: each
-- Every truth, oldest first, from a row on.
SELECT t.*, c.sha256 AS sha256, p.sha256 AS prev_sha256 FROM truths t
LEFT JOIN chain c ON c.link = t.link LEFT JOIN chain p ON p.link = t.link - 1
WHERE t.id > ? ORDER BY t.id LIMIT ?;

-- name: each_of_category
-- Every truth of a category, oldest first, from a row on.
SELECT t.*, c.sha256 AS sha256, p.sha256 AS prev_sha256 FROM truths t
LEFT JOIN chain c ON c.link = t.link LEFT JOIN chain p ON p.link = t.link - 1
WHERE t.category = ? AND t.id > ? ORDER BY t.id LIMIT ?;


-- name: add_feedback
-- A person's judgement of one record for one query.
INSERT INTO feedback (key, terms, query, relevant, by, at) VALUES (?, ?, ?, ?, ?, ?);

-- name: feedback_of
-- Judgements of these keys.
SELECT key, terms, relevant FROM feedback WHERE key = ? ORDER BY at DESC LIMIT 50;

-- name: drop_feedback
-- The judgements of a key go.
DELETE FROM feedback WHERE key = ?;

-- name: judged
-- Whether anything was ever judged.
SELECT count(*) FROM (SELECT 1 FROM feedback LIMIT 1);

-- name: clear_words
-- The index is to be made anew.
INSERT INTO words (words) VALUES ('delete-all');

-- name: clear_snippets
-- The index is to be made anew.
DELETE FROM snippets;

-- name: clear_prefixes
-- Folders are counted anew; they keep their numbers, which truths and index rows carry.
UPDATE prefixes SET truths = 0, last_seq = 0, last_ms = 0;

-- name: clear_ladder
-- The index is to be made anew.
DELETE FROM ladder;

-- name: add_rung
-- Every so many index rows one id is kept: it tells how many rows lie behind an id, about.
INSERT OR IGNORE INTO ladder (id) VALUES (?);

-- name: rungs_from
-- How many kept ids are not older than this one.
SELECT count(*) FROM ladder WHERE id >= ?;

-- name: truth_by_id
-- The standing version with this number.
SELECT t.*, c.sha256 AS sha256, p.sha256 AS prev_sha256 FROM truths t
LEFT JOIN chain c ON c.link = t.link LEFT JOIN chain p ON p.link = t.link - 1 WHERE t.id = ?;

-- name: rows_at_places
-- The index rows at some places (a JSON array): place, row, part, and what their truths fold by.
SELECT s.place, s.id, s.part, t.fold, t.at, t.key FROM json_each(?) AS j
JOIN snippets s ON s.place = j.value JOIN truths t ON t.id = s.id - s.part;

-- name: truths_by_ids
-- The standing versions with these numbers (a JSON array).
SELECT t.*, NULL AS sha256, NULL AS prev_sha256 FROM json_each(?) AS j JOIN truths t ON t.id = j.value;

-- name: alike
-- Records that differ only in times and numbers: how many, the first and the last, within a time.
SELECT count(*), min(at), max(at) FROM truths
WHERE fold = ?1 AND id BETWEEN ?2 AND ?3 AND at BETWEEN ?4 AND ?5;

-- name: newest_rows
-- Truths of any category but some (a JSON array), newest first, within a time. The newest of each category
-- are looked up, so that many of a hidden one cost nothing.
SELECT t.id FROM prefixes p JOIN truths t ON t.id IN (
    SELECT n.id FROM truths n WHERE n.category = p.id AND n.id BETWEEN ?2 AND ?3 ORDER BY n.id DESC LIMIT ?4)
WHERE instr(p.name, '.') = 0 AND p.truths > 0 AND p.id NOT IN (SELECT value FROM json_each(?1))
ORDER BY t.id DESC LIMIT ?4;

-- name: newest_filed
-- Truths that lie in some folders (an expression), newest first, within a time.
SELECT t.id FROM words JOIN truths t ON t.id = words.rowid
WHERE words MATCH ? AND words.rowid BETWEEN ? AND ? ORDER BY words.rowid DESC LIMIT ?;

-- name: newest_under
-- Truths whose keys lie under some names (a JSON array), newest first, within a time.
SELECT DISTINCT t.id FROM json_each(?1) j JOIN truths t ON t.key >= j.value AND t.key < j.value || '/'
WHERE substr(t.key || '.', 1, length(j.value) + 1) = j.value || '.' AND t.id BETWEEN ?2 AND ?3
ORDER BY t.id DESC LIMIT ?4;

-- name: count_within
-- How many truths lie within a time, counted to a bound, but for some categories and some names (JSON arrays).
SELECT count(*) FROM (
    SELECT 1 FROM prefixes p JOIN truths t ON t.category = p.id
    WHERE instr(p.name, '.') = 0 AND p.truths > 0 AND p.id NOT IN (SELECT value FROM json_each(?1))
    AND t.id BETWEEN ?3 AND ?4 AND (t.id BETWEEN ?5 AND ?6 OR t.at BETWEEN ?7 AND ?8)
    AND (?2 = '[]' OR NOT EXISTS (
        SELECT 1 FROM json_each(?2) h WHERE substr(t.key, 1, length(h.value) + 1) = h.value || '.'))
    LIMIT ?9);

-- name: count_filed
-- How many truths lie in some folders (an expression) within a time, counted to a bound.
SELECT count(*) FROM (SELECT 1 FROM words JOIN truths t ON t.id = words.rowid
WHERE words MATCH ?1 AND words.rowid BETWEEN ?2 AND ?3
AND (words.rowid BETWEEN ?4 AND ?5 OR t.at BETWEEN ?6 AND ?7) LIMIT ?8);

-- name: count_under
-- How many keys lie under some names (a JSON array) within a time, counted to a bound; levels as well.
SELECT count(*) FROM (
    SELECT DISTINCT t.id FROM json_each(?1) j JOIN truths t ON t.key >= j.value AND t.key < j.value || '/'
    WHERE substr(t.key || '.', 1, length(j.value) + 1) = j.value || '.'
    AND t.id BETWEEN ?2 AND ?3 AND t.at BETWEEN ?4 AND ?5
    AND (?6 = '[]' OR t.level IN (SELECT value FROM json_each(?6))) LIMIT ?7);

-- name: matching_rows
-- The newest index rows that match an expression, within a time.
SELECT rowid FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ? ORDER BY rowid DESC LIMIT ?;

-- name: places_of_rows
-- Where some index rows (a JSON array) stand among their neighbours, and how long they are.
SELECT s.id, s.place, s.length FROM json_each(?) AS j JOIN snippets s ON s.id = j.value;

-- name: count_matches
-- How many index rows match an expression within a time, counted to a bound.
SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ?1 AND rowid BETWEEN ?2 AND ?3 LIMIT ?4);

-- name: matching_truths
-- Truths of which an index row matches an expression, within a time.
SELECT DISTINCT words.rowid - s.part FROM words JOIN snippets s ON s.id = words.rowid
WHERE words MATCH ?1 AND words.rowid BETWEEN ?2 AND ?3 LIMIT ?4;

-- name: count_matching_truths
-- The same, of truths: where some are cut into several index rows, of a time to the microsecond, or under
-- some names (a JSON array; empty: any).
SELECT count(*) FROM (
    SELECT DISTINCT words.rowid - s.part FROM words JOIN snippets s ON s.id = words.rowid
    WHERE words MATCH ?1 AND words.rowid BETWEEN ?2 AND ?3
    AND (words.rowid BETWEEN ?5 AND ?6 OR EXISTS (
        SELECT 1 FROM truths t WHERE t.id = words.rowid - s.part AND t.at BETWEEN ?7 AND ?8))
    AND (?9 = '[]' OR EXISTS (
        SELECT 1 FROM truths t, json_each(?9) j WHERE t.id = words.rowid - s.part
        AND substr(t.key || '.', 1, length(j.value) + 1) = j.value || '.'))
    LIMIT ?4);

-- name: pages
-- Pages of the self as they stood when the index took them in.
SELECT page, mark FROM pages;

-- name: mark_of_page
-- How one of them stood.
SELECT mark FROM pages WHERE page = ?;

-- name: save_mark
-- A page is taken in.
INSERT INTO pages (page, mark) VALUES (?, ?) ON CONFLICT (page) DO UPDATE SET mark = excluded.mark;

-- name: drop_page
-- A page is gone.
DELETE FROM pages WHERE page = ?;

-- name: forget_marks
-- Every page is to be read again.
UPDATE pages SET mark = '';

-- name: forget_marks_holding
-- The pages that hold a key are to be read again.
UPDATE pages SET mark = '' WHERE page IN (SELECT page FROM page_keys WHERE key = ?);

-- name: keys_of_page
-- Keys a page held, with the level at which they stand; null when they stand no more.
SELECT p.key, t.level FROM page_keys p LEFT JOIN truths t ON t.key = p.key WHERE p.page = ?;

-- name: told_by
-- At which level a key stands, its time, and its value, which names the page.
SELECT level, at, value FROM truths WHERE key = ?;

-- name: add_page_key
-- A page holds a key.
INSERT OR IGNORE INTO page_keys (page, key) VALUES (?, ?);

-- name: drop_page_key
-- A page holds a key no more.
DELETE FROM page_keys WHERE page = ? AND key = ?;

-- name: pages_holding
-- The pages that hold a key.
SELECT page FROM page_keys WHERE key = ?;

-- name: keys_of_category
-- Some keys of a category and their times.
SELECT key, at FROM truths WHERE category = ? LIMIT ?;

-- name: drop_meta
-- A fact about the store holds no more.
DELETE FROM meta WHERE name = ?;

-- name: await_row
-- An index row is to get a vector.
INSERT OR IGNORE INTO awaited (id) VALUES (?);

-- name: await_rows
-- The newest index rows, but those of some folders (a JSON array), are to get vectors.
INSERT OR IGNORE INTO awaited (id) SELECT id FROM snippets
WHERE place >> 36 NOT IN (SELECT value FROM json_each(?)) ORDER BY id DESC LIMIT ?;

-- name: await_row_no_more
-- An index row has its vector.
DELETE FROM awaited WHERE id = ?;

-- name: await_rows_within_no_more
-- The index rows of one truth go.
DELETE FROM awaited WHERE id BETWEEN ? AND ?;

-- name: await_rows_no_more_before
-- What is older gets no vectors.
DELETE FROM awaited WHERE id < ?;

-- name: clear_awaited
-- No row is to get a vector.
DELETE FROM awaited;

-- name: awaited_rows
-- The newest index rows without a vector, and the truths whose they are.
SELECT s.id, s.place, s.part, t.id, t.key, t.description, t.value, t.snippets, t.version, t.written
FROM awaited a JOIN snippets s ON s.id = a.id JOIN truths t ON t.id = s.id - s.part
ORDER BY a.id DESC LIMIT ?;

-- name: rows_awaited
-- Of some index rows (a JSON array) those that still wait for a vector, and what they are of.
SELECT a.id, t.id, t.key, t.version, t.written FROM json_each(?) AS j JOIN awaited a ON a.id = j.value
JOIN snippets s ON s.id = a.id JOIN truths t ON t.id = s.id - s.part;

-- name: texts_at_places
-- The index rows at some places (a JSON array), and the truths whose they are.
SELECT s.place, s.part, t.id, t.key, t.description, t.value, t.snippets FROM json_each(?) AS j
JOIN snippets s ON s.place = j.value JOIN truths t ON t.id = s.id - s.part;

-- name: add_vector
-- The vector of an index row; it gets a new number even where there was one.
INSERT OR REPLACE INTO vectors (id, vector) VALUES (?, ?);

-- name: vectors_after
-- Vectors made after the one with this number, in order, and where their rows stand.
SELECT v.seq, v.id, s.place, v.vector FROM vectors v JOIN snippets s ON s.id = v.id
WHERE v.seq > ? ORDER BY v.seq;

-- name: newest_vector
-- Of the rows with vectors the one that comes after so many newer ones.
SELECT id FROM vectors ORDER BY id DESC LIMIT 1 OFFSET ?;

-- name: drop_vectors
-- The index rows of one truth go.
DELETE FROM vectors WHERE id BETWEEN ? AND ?;

-- name: drop_vectors_before
-- What is older needs none.
DELETE FROM vectors WHERE id < ?;

-- name: clear_vectors
-- They are to be made anew.
DELETE FROM vectors;

-- name: encoded_rows
-- Of some index rows (a JSON array) those that stand and have a vector, with the numbers of their truths.
SELECT s.id, s.id - s.part FROM json_each(?) AS j JOIN vectors v ON v.id = j.value
JOIN snippets s ON s.id = j.value;

-- name: folders_under
-- Some folders (a JSON array of their numbers) and all that lie in them.
SELECT c.id FROM json_each(?) AS j JOIN prefixes p ON p.id = j.value
JOIN prefixes c ON c.name = p.name OR (c.name > p.name || '.' AND c.name < p.name || '/');
