"""The ledger's tables, as SQL: each migration once, in order, by a role that may create."""

from __future__ import annotations

from typing import Final

from scrapy_gp4c.distributed.flush_function import FLUSH
from scrapy_gp4c.distributed.look_function import LOOK
from scrapy_gp4c.distributed.post_function import POST

_TABLES: Final = """
CREATE SCHEMA gp4c;
CREATE TABLE gp4c.about (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    version integer NOT NULL,
    ledger text NOT NULL,
    shards smallint NOT NULL CHECK (shards BETWEEN 1 AND 1024)
);
CREATE TABLE gp4c.worker (
    name text PRIMARY KEY,
    instance text NOT NULL,
    expires timestamptz NOT NULL,
    draining boolean NOT NULL DEFAULT false,
    copies smallint[] NOT NULL DEFAULT '{}',
    flush bytea
) WITH (fillfactor = 50);
CREATE TABLE gp4c.shard (
    shard smallint PRIMARY KEY,
    token bigint NOT NULL DEFAULT 0,
    holder text,
    instance text,
    deaths smallint NOT NULL DEFAULT 0,
    pages bigint NOT NULL DEFAULT 0,
    cycle integer NOT NULL DEFAULT 0,
    seq integer NOT NULL DEFAULT 0,
    done integer NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
CREATE TABLE gp4c.cycle (
    cycle integer PRIMARY KEY,
    opened timestamptz NOT NULL DEFAULT clock_timestamp(),
    opener text NOT NULL,
    decided text NOT NULL,
    code text NOT NULL,
    closed timestamptz,
    record text
);
CREATE TABLE gp4c.report (
    cycle integer,
    step text,
    shard smallint,
    body bytea NOT NULL,
    PRIMARY KEY (cycle, step, shard)
);
CREATE TABLE gp4c.log (
    cycle integer,
    shard smallint,
    seq integer,
    token bigint NOT NULL,
    visits integer NOT NULL,
    sha256 bytea NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (cycle, shard, seq)
) PARTITION BY LIST (cycle);
ALTER TABLE gp4c.log ALTER body SET STORAGE EXTERNAL;
CREATE TABLE gp4c.mail (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    cycle integer NOT NULL,
    sender smallint NOT NULL,
    receiver smallint NOT NULL,
    body bytea NOT NULL
);
ALTER TABLE gp4c.mail ALTER body SET STORAGE EXTERNAL;
CREATE INDEX mail_receiver ON gp4c.mail (receiver, id);
CREATE TABLE gp4c.object (
    name text PRIMARY KEY,
    shard smallint NOT NULL,
    kind text NOT NULL CHECK (kind IN ('snapshot', 'cycle')),
    cycle integer NOT NULL,
    token bigint NOT NULL,
    size bigint NOT NULL,
    sha256 bytea NOT NULL,
    place text NOT NULL,
    registered timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX object_shard ON gp4c.object (shard, kind, cycle);
CREATE TABLE gp4c.blob (
    name text,
    part integer,
    body bytea NOT NULL,
    PRIMARY KEY (name, part)
);
ALTER TABLE gp4c.blob ALTER body SET STORAGE EXTERNAL;
"""

# What needs a table's owner, for workers that are none: one partition of the log per cycle. Who calls them
# can neither name another table nor drop what no registered object holds.
_FUNCTIONS: Final = """
CREATE FUNCTION gp4c.open_log(number integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF to_regclass(format('gp4c.log_%s', number)) IS NULL THEN
        EXECUTE format('CREATE TABLE gp4c.log_%s (LIKE gp4c.log INCLUDING STORAGE)', number);
        EXECUTE format(
            'ALTER TABLE gp4c.log ATTACH PARTITION gp4c.log_%s FOR VALUES IN (%s)', number, number);
    END IF;
END $$;
CREATE FUNCTION gp4c.drop_log(number integer) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM gp4c.cycle WHERE cycle = number AND closed IS NOT NULL)
        OR EXISTS (
            SELECT FROM gp4c.log AS l WHERE l.cycle = number AND NOT EXISTS (
                SELECT FROM gp4c.object AS o
                WHERE o.shard = l.shard AND o.cycle = number AND o.kind = 'cycle'))
    THEN RETURN false;
    END IF;
    EXECUTE format('DROP TABLE IF EXISTS gp4c.log_%s', number);
    RETURN true;
END $$;
CREATE FUNCTION gp4c.retire(number integer) RETURNS SETOF text
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM gp4c.object AS o WHERE o.shard = number AND o.kind = 'snapshot' AND o.registered < (
        SELECT max(n.registered) FROM gp4c.object AS n WHERE n.shard = number AND n.kind = 'snapshot')
    RETURNING o.name
$$;
REVOKE ALL ON FUNCTION gp4c.open_log(integer), gp4c.drop_log(integer), gp4c.retire(integer) FROM PUBLIC;
"""

# What is asked often takes one short statement and gets one short row. Nothing here needs an owner's rights,
# but for `drop_log`, which now looks at a shard's first segment only.
_ECONOMY: Final = """
ALTER TABLE gp4c.object ADD COLUMN log bigint NOT NULL DEFAULT 0;
CREATE OR REPLACE FUNCTION gp4c.drop_log(number integer) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM gp4c.cycle WHERE cycle = number AND closed IS NOT NULL)
        OR EXISTS (
            SELECT FROM gp4c.shard AS s WHERE NOT EXISTS (
                SELECT FROM gp4c.object AS o
                WHERE o.shard = s.shard AND o.cycle = number AND o.kind = 'cycle')
            AND EXISTS (SELECT FROM gp4c.log AS l WHERE l.cycle = number AND l.shard = s.shard))
    THEN RETURN false;
    END IF;
    EXECUTE format('DROP TABLE IF EXISTS gp4c.log_%s', number);
    RETURN true;
END $$;
CREATE FUNCTION gp4c.homeless(parked integer) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    at timestamptz = clock_timestamp();  -- once: else both tables cannot be joined by a hash
BEGIN
    RETURN (SELECT count(*) FROM gp4c.shard AS s WHERE s.deaths < parked AND NOT EXISTS (
        SELECT FROM gp4c.worker AS w
        WHERE w.name = s.holder AND w.instance = s.instance AND w.expires >= at));
END $$;
CREATE FUNCTION gp4c.look(own text, parked integer) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
    number integer;
    ended timestamptz;
BEGIN
    SELECT c.cycle, c.closed INTO number, ended FROM gp4c.cycle AS c ORDER BY c.cycle DESC LIMIT 1;
    RETURN concat_ws(' ', coalesce(number, 0), gp4c.homeless(parked),
        CASE WHEN number IS NULL OR ended IS NOT NULL THEN 'closed' END,
        CASE WHEN number <= (SELECT min(done) FROM gp4c.shard) AND NOT EXISTS (SELECT FROM gp4c.mail)
            THEN 'ended' END,
        CASE WHEN EXISTS (SELECT FROM gp4c.shard AS s WHERE s.instance = own AND EXISTS (
            SELECT FROM gp4c.mail AS m WHERE m.receiver = s.shard)) THEN 'mail' END,
        CASE WHEN EXISTS (SELECT FROM gp4c.worker WHERE instance = own AND draining) THEN 'draining' END);
END $$;
CREATE FUNCTION gp4c.step(of_cycle integer, of_step text, parked integer) RETURNS bytea
LANGUAGE plpgsql STABLE AS $$
DECLARE
    missing bigint;
    answer bytea;
BEGIN
    SELECT r.body INTO answer FROM gp4c.report AS r
        WHERE r.cycle = of_cycle AND r.step = of_step AND r.shard = -1;
    IF FOUND THEN
        RETURN convert_to('0 0 a', 'UTF8') || answer;
    END IF;
    SELECT (SELECT shards FROM gp4c.about) - count(*) INTO missing
        FROM gp4c.report AS r WHERE r.cycle = of_cycle AND r.step = of_step AND r.shard >= 0;
    RETURN convert_to(
        concat(missing, ' ', CASE WHEN missing > 0 THEN gp4c.homeless(parked) ELSE 0 END, ' '), 'UTF8');
END $$;
CREATE FUNCTION gp4c.post(
    of_cycle integer, of_step text, of_shard integer, held bigint, part bytea, parked integer) RETURNS bytea
LANGUAGE plpgsql AS $$
DECLARE
    raised bigint;
BEGIN
    IF of_shard >= 0 THEN
        SELECT token INTO raised FROM gp4c.shard WHERE shard = of_shard FOR UPDATE;
        IF raised IS DISTINCT FROM held THEN
            RETURN convert_to('lost', 'UTF8');
        END IF;
    END IF;
    INSERT INTO gp4c.report (cycle, step, shard, body) VALUES (of_cycle, of_step, of_shard, part)
        ON CONFLICT DO NOTHING;
    IF NOT FOUND AND part IS DISTINCT FROM (
        SELECT body FROM gp4c.report WHERE cycle = of_cycle AND step = of_step AND shard = of_shard)
    THEN RETURN convert_to('differs', 'UTF8');
    END IF;
    RETURN gp4c.step(of_cycle, of_step, parked);
END $$;
"""

_PLANNED_ONCE: Final = "".join(
    f"ALTER FUNCTION gp4c.{name} SET plan_cache_mode = force_generic_plan;\n"
    for name in ("flush", "look", "post", "step")
)
"""Else the server plans most of their statements anew in each call, as it knows more of these arrays than of
arrays: a fifth of the processor time of a flush, half of that of the first ones."""

MIGRATIONS: Final[tuple[str, ...]] = (_TABLES + _FUNCTIONS, _ECONOMY, FLUSH, LOOK + _PLANNED_ONCE, POST)
"""The n-th, from 1 on, makes version n of version n - 1."""

GRANTS: Final = (
    "GRANT USAGE ON SCHEMA gp4c TO {role}",
    "GRANT SELECT ON ALL TABLES IN SCHEMA gp4c TO {role}",
    "GRANT INSERT, UPDATE, DELETE ON gp4c.worker TO {role}",
    "GRANT UPDATE ON gp4c.shard TO {role}",
    "GRANT INSERT, UPDATE ON gp4c.cycle TO {role}",
    "GRANT INSERT, DELETE ON gp4c.report, gp4c.mail, gp4c.blob TO {role}",
    "GRANT INSERT ON gp4c.log TO {role}",
    "GRANT INSERT ON gp4c.object TO {role}",
    "GRANT EXECUTE ON FUNCTION gp4c.open_log(integer), gp4c.drop_log(integer), gp4c.retire(integer)"
    " TO {role}",
)
"""What a worker's role may do: no DDL; no word of the log and no registered object can be taken back."""
