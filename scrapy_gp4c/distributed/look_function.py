"""What a worker asks for once a second, as a function of the ledger's server: its letters come with it."""

from __future__ import annotations

from typing import Final

LOOK: Final = """
DROP FUNCTION gp4c.look(text, integer);
CREATE FUNCTION gp4c.look(
    own text, parked integer, of_cycle integer, of_step text, known bigint[], most_bytes integer,
    most integer) RETURNS bytea[] LANGUAGE plpgsql STABLE AS $$
DECLARE
    number integer;
    ended timestamptz;
    letters bytea[];
BEGIN
    SELECT c.cycle, c.closed INTO number, ended FROM gp4c.cycle AS c ORDER BY c.cycle DESC LIMIT 1;
    -- Shard by shard, so that each takes a look into the index, however much mail others have.
    SELECT array_agg(l.head || l.body ORDER BY l.id) INTO letters FROM (
        SELECT m.id, m.body,
            int8send(m.id) || int4send(m.cycle) || int2send(m.sender) || int2send(m.receiver) AS head
        FROM gp4c.shard AS s, LATERAL (
            SELECT o.id, o.cycle, o.sender, o.receiver,
                CASE WHEN octet_length(o.body) <= most_bytes THEN o.body ELSE '' END AS body
            FROM gp4c.mail AS o WHERE o.receiver = s.shard AND o.id <> ALL (known) ORDER BY o.id LIMIT most
        ) AS m WHERE s.instance = own ORDER BY m.id LIMIT most) AS l;
    RETURN convert_to(concat_ws(' ', coalesce(number, 0), gp4c.homeless(parked),
        CASE WHEN number IS NULL OR ended IS NOT NULL THEN 'closed' END,
        CASE WHEN number <= (SELECT min(done) FROM gp4c.shard) AND NOT EXISTS (SELECT FROM gp4c.mail)
            THEN 'ended' END,
        CASE WHEN EXISTS (SELECT FROM gp4c.report AS r WHERE r.cycle = of_cycle AND r.step = of_step)
            THEN 'asked' END,
        CASE WHEN EXISTS (SELECT FROM gp4c.worker WHERE instance = own AND draining) THEN 'draining' END),
        'UTF8') || letters;
END $$;
"""
