"""A flush as a function of the ledger's server: one statement.

Nobody waits for an answer with rows locked, and the server's process keeps its plans. Each statement in it
sees what is committed by then. What is refused is an error, of which nothing stays: what its words mean is in
`scrapy_gp4c.distributed.log`.
"""

from __future__ import annotations

from typing import Final

FLUSH: Final = """
CREATE FUNCTION gp4c.flush(
    of_cycle integer, own text, own_instance text, lease_s float8, digest bytea, most_ms integer,
    held smallint[], tokens bigint[],
    segments smallint[], seqs integer[], counts integer[], sums bytea[], bodies bytea[],
    senders smallint[], receivers smallint[], letters bytea[], consumed bigint[],
    progressed smallint[], known bigint[], ended boolean[]) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    last bytea;
    is_open boolean;
    told text;
    found_mail bigint;
BEGIN
    PERFORM set_config('lock_timeout', most_ms::text, true);
    PERFORM FROM gp4c.shard WHERE shard = ANY (held) ORDER BY shard FOR UPDATE;
    -- After that, as this very flush may be there: its connection was lost, and the lock was waited for.
    SELECT w.flush, (SELECT c.closed IS NULL FROM gp4c.cycle AS c WHERE c.cycle = of_cycle)
        INTO last, is_open FROM gp4c.worker AS w WHERE w.name = own AND w.instance = own_instance;
    IF NOT FOUND THEN
        told = 'name';
    ELSIF last IS DISTINCT FROM digest THEN
        told = CASE WHEN is_open THEN '' ELSE 'closed' END;
    END IF;
    IF told IS NOT NULL THEN
        told = coalesce(
            (SELECT 'lost ' || string_agg(t.shard::text, ' ') FROM unnest(held, tokens) AS t (shard, token)
                WHERE NOT EXISTS (SELECT FROM gp4c.shard AS s WHERE s.shard = t.shard AND s.token = t.token)),
            nullif(told, ''),
            -- Segments that are there must be equal; the others go on where the shard is.
            (SELECT concat_ws(
                    ' ', CASE WHEN n.seq < n.base THEN 'other' ELSE 'gap' END, n.shard, n.seq, n.due)
                FROM (SELECT t.*, s.base, s.base - 1 + row_number() OVER (
                            PARTITION BY t.shard, t.seq < s.base ORDER BY t.at) AS due
                    FROM unnest(segments, seqs, sums) WITH ORDINALITY AS t (shard, seq, sha256, at),
                        LATERAL (SELECT CASE WHEN o.cycle = of_cycle THEN o.seq ELSE 0 END AS base
                            FROM gp4c.shard AS o WHERE o.shard = t.shard) AS s) AS n
                WHERE CASE WHEN n.seq >= n.base THEN n.seq <> n.due ELSE NOT EXISTS (
                    SELECT FROM gp4c.log AS l WHERE l.cycle = of_cycle AND l.shard = n.shard AND l.seq = n.seq
                        AND l.sha256 = n.sha256) END
                ORDER BY n.at LIMIT 1));
        IF told IS NOT NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'GP4CF', MESSAGE = told;
        END IF;
    END IF;
    UPDATE gp4c.worker AS w SET expires = clock_timestamp() + make_interval(secs => lease_s), flush = digest
        WHERE w.name = own AND w.instance = own_instance;
    IF last = digest THEN
        RETURN true;
    END IF;
    IF cardinality(consumed) > 0 THEN
        DELETE FROM gp4c.mail WHERE id = ANY (consumed) AND receiver = ANY (held);
        GET DIAGNOSTICS found_mail = ROW_COUNT;
        IF found_mail <> cardinality(consumed) THEN
            RAISE EXCEPTION USING ERRCODE = 'GP4CF', MESSAGE = 'consumed ' || found_mail;
        END IF;
    END IF;
    IF cardinality(letters) > 0 THEN
        INSERT INTO gp4c.mail (cycle, sender, receiver, body) SELECT of_cycle, l.*
            FROM unnest(senders, receivers, letters) AS l (sender, receiver, body)
            WHERE l.receiver IN (SELECT shard FROM gp4c.shard);
        GET DIAGNOSTICS found_mail = ROW_COUNT;
        IF found_mail <> cardinality(letters) THEN
            RAISE EXCEPTION USING ERRCODE = 'GP4CF', MESSAGE = 'letters';
        END IF;
    END IF;
    IF cardinality(segments) > 0 THEN
        INSERT INTO gp4c.log (cycle, shard, seq, token, visits, sha256, body)
            SELECT of_cycle, n.shard, n.seq, s.token, n.visits, n.sha256, n.body
            FROM unnest(segments, seqs, counts, sums, bodies) AS n (shard, seq, visits, sha256, body)
            JOIN gp4c.shard AS s ON s.shard = n.shard
            WHERE n.seq >= CASE WHEN s.cycle = of_cycle THEN s.seq ELSE 0 END;
        UPDATE gp4c.shard AS s SET cycle = of_cycle,
                seq = greatest(CASE WHEN s.cycle = of_cycle THEN s.seq ELSE 0 END, n.next)
            FROM (SELECT t.shard, max(t.seq) + 1 AS next FROM unnest(segments, seqs) AS t (shard, seq)
                GROUP BY t.shard) AS n WHERE s.shard = n.shard;
    END IF;
    IF cardinality(progressed) > 0 THEN
        -- A shard that came to its end did not kill its holder.
        UPDATE gp4c.shard AS s SET pages = n.pages, done = of_cycle - CASE WHEN n.ended THEN 0 ELSE 1 END,
                deaths = CASE WHEN n.ended THEN 0 ELSE s.deaths END
            FROM unnest(progressed, known, ended) AS n (shard, pages, ended) WHERE s.shard = n.shard;
    END IF;
    RETURN false;
END $$;
"""
