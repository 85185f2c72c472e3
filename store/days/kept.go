package days

// KeptSince is the first of the days that have partitions up to today without a gap. An older partition may still
// exist: for a run that has not ended, for a single slot of long ago, or for failures alone.
const KeptSince = `
	(WITH days AS (SELECT to_date(right(c.relname, 8), 'YYYYMMDD') AS day
	                 FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
	                WHERE i.inhparent = 'punctual.runs'::regclass AND c.relname ~ '^runs_\d{8}$')
	 SELECT max(d.day)::timestamp AT TIME ZONE 'UTC' FROM days d
	 WHERE d.day <= (now() AT TIME ZONE 'UTC')::date AND NOT EXISTS (SELECT FROM days e WHERE e.day = d.day - 1))`
