package store

import "fmt"

// What a claim selects by: a quota for each queue, or one for each tenant in a queue.
const (
	queueQuotas  = `unnest((SELECT $1::smallint[]), (SELECT $2::int[])) AS q(queue, slots)`
	tenantQuotas = `unnest((SELECT $1::smallint[]), (SELECT $2::int[]), (SELECT $3::int[])) AS q(queue, slots, tenant)`
)

// inOrder is the claim in one sentence: for each quota the rows that are due, high priority before normal before low
// and then by due time, as many as the quota allows, passing over what others have locked. The limits stand beside
// the locks: an outer LIMIT would lock more than it returns.
func inOrder(quotas, lock string, due func(lane string) string) string {
	return fmt.Sprintf(`
SELECT s.*, now() FROM %[1]s CROSS JOIN LATERAL (
    WITH high AS MATERIALIZED (
        %[3]s LIMIT q.slots %[2]s),
    normal AS MATERIALIZED (
        %[4]s LIMIT q.slots - (SELECT count(*) FROM high) %[2]s),
    low AS MATERIALIZED (
        %[5]s LIMIT q.slots - (SELECT count(*) FROM high) - (SELECT count(*) FROM normal) %[2]s)
    SELECT * FROM high UNION ALL SELECT * FROM normal UNION ALL SELECT * FROM low) s`,
		quotas, lock, due("(q.queue * 4)::smallint"), due("(q.queue * 4 + 1)::smallint"), due("(q.queue * 4 + 2)::smallint"))
}

// inOneLane is the claim of what waits in one lane, whatever its priority.
func inOneLane(quotas, lock, due string) string {
	return fmt.Sprintf(`
SELECT s.*, now() FROM %[1]s CROSS JOIN LATERAL (%[3]s LIMIT q.slots %[2]s) s`, quotas, lock, due)
}

// window selects the rows of a lane that are due within some time, oldest first.
type window func(lane string) string

// ofAnybody is the window of all tenants.
func ofAnybody(column, after, until string) window {
	return func(lane string) string {
		return fmt.Sprintf(`lane = %[1]s AND %[2]s > %[3]s AND %[2]s <= %[4]s ORDER BY %[2]s`, lane, column, after, until)
	}
}

// ofTenant is the window of one tenant. That the index by tenant serves it, and not the other one through all that
// others have due, is because the column's n_distinct is set: see the migrations.
func ofTenant(column, after, until string) window {
	return func(lane string) string {
		return `tenant = q.tenant AND ` + ofAnybody(column, after, until)(lane)
	}
}

// ofOthers is the window of all tenants but those of $3, of what became due since $4 ago: however much those have due,
// only as much of it is passed over as became due in that time.
func ofOthers(column string) window {
	return func(lane string) string {
		return `tenant <> ALL($3::int[]) AND ` + ofAnybody(column, "now() - (SELECT $4::interval)", "now()")(lane)
	}
}
