"""A part of a plan as a function of the ledger's server: one statement, which tells how far the step is.

Whoever posts the last part may ask for all of them at once, as it is the one to put them together.
"""

from __future__ import annotations

from typing import Final

POST: Final = """
CREATE FUNCTION gp4c.post(
    of_cycle integer, of_step text, of_shard integer, held bigint, part bytea, parked integer, tell boolean)
RETURNS bytea LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    told bytea = gp4c.post(of_cycle, of_step, of_shard, held, part, parked);
BEGIN
    IF tell AND told = convert_to('0 0 ', 'UTF8') THEN
        RETURN convert_to('0 0 p', 'UTF8') || (
            SELECT string_agg(int4send(octet_length(r.body)) || r.body, '' ORDER BY r.shard)
            FROM gp4c.report AS r WHERE r.cycle = of_cycle AND r.step = of_step AND r.shard >= 0);
    END IF;
    RETURN told;
END $$;
"""
