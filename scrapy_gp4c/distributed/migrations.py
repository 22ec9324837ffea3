"""The ledger's tables, as SQL: each migration once, in order, by a role that may create."""

from __future__ import annotations

from typing import Final

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

MIGRATIONS: Final[tuple[str, ...]] = (_TABLES + _FUNCTIONS,)
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
