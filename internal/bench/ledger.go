package bench

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/httpapi/client"
	"punctual/internal/process"
)

// costs are what a kind of work costs, by statement in Postgres and by function in the replica.
type costs struct {
	kind, unit string
	n          int // pieces of work
	burst
	statements []statement
	functions  []function
	allocated  allocations
}

// statement is what a statement costs a piece of work. Its time is what passed, so waits for locks and for the disk are
// in it.
type statement struct {
	Text    string
	Calls   float64
	Micros  float64
	Buffers float64 // of shared memory, read or written
	WAL     float64 // bytes
}

// allocations are what a piece of work allocates in the replica.
type allocations struct{ objects, bytes float64 }

// preload is what the ledger needs of Postgres. It makes each statement somewhat dearer, so no other benchmark has it.
var preload = map[string]string{
	"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track": "top", "compute_query_id": "on",
}

// runLedger measures what one-shots, recurring jobs, reads and creates of the API cost, and where.
func runLedger(ctx context.Context, l *lab) {
	l.vacuums()
	l.exec(ctx, `CREATE SCHEMA IF NOT EXISTS ledger`)
	l.exec(ctx, `CREATE EXTENSION IF NOT EXISTS pg_stat_statements SCHEMA ledger`)
	l.exec(ctx, `SET pg_stat_statements.track = 'none'`) // what the bench itself asks does not count
	replica, to := l.profiled(ctx, fmt.Sprintf("--queues=default=%d", l.Sizes.Slots)), l.target(ctx)
	n := l.Sizes.BurstJobs
	var all []costs
	for _, kind := range []struct {
		name     string
		schedule func(time.Time) map[string]any
	}{{"One-shots", oneShot}, {"Recurring jobs", daily}} {
		l.say("%d %s", n, kind.name)
		due, try := l.herd(ctx, replica.Replica, n, func(due time.Time, try, i int) process.JobSpec {
			name := fmt.Sprintf("%s-%d-%d", kind.name[:3], try, i)
			return invoices(name, kind.schedule(due), to.url("/ledger/"+kind.name[:3]+fmt.Sprint(try)))
		})
		l.exec(ctx, `VACUUM (ANALYZE)`)
		l.inTime("the load was vacuumed", due.Add(-time.Second/2), "it should have been")
		l.until(ctx, due.Add(-300*time.Millisecond))
		of := replica.measure(ctx, l, func() (burst, int) {
			return l.measured(ctx, due, fmt.Sprintf("/ledger/%s%d", kind.name[:3], try), n, to, replica.Replica), n
		})
		of.kind, of.unit = kind.name, "run"
		all = append(all, of)
	}
	all = append(all, l.costsOfAPI(ctx, replica)...)
	for _, of := range all {
		of.figures(l)
	}
	l.must(writeLedger(l, all))
}

// mostOf is what can be counted, and so does not depend on the machine: the most that a piece of work may take. It
// leaves a quarter for what a replica does meanwhile, and more for the API, as a slow machine answers few requests.
var mostOf = map[string]struct{ statements, buffers, wal, objects float64 }{
	"One-shots":        {0.15, 26, 900, 110},
	"Recurring jobs":   {0.15, 42, 1400, 120},
	"Creates of a job": {8, 90, 3500, 800},
	"Reads of a job":   {5.5, 60, 60, 450},
}

func (of costs) figures(l *lab) {
	var sum statement
	for _, s := range of.statements {
		sum.Calls, sum.Buffers, sum.WAL = sum.Calls+s.Calls, sum.Buffers+s.Buffers, sum.WAL+s.WAL
	}
	most := mostOf[of.kind]
	for _, f := range []struct {
		name        string
		value, most float64
	}{
		{"statements", sum.Calls, most.statements},
		{"buffers", sum.Buffers, most.buffers},
		{"bytes of WAL", sum.WAL, most.wal},
		{"objects allocated", of.allocated.objects, most.objects},
	} {
		l.figure(of.kind+", "+f.name, "a "+of.unit, atMost(f.most), f.value)
	}
}

// costsOfAPI measures creates and reads of jobs.
func (l *lab) costsOfAPI(ctx context.Context, replica *profiledReplica) (all []costs) {
	transport := &http.Transport{MaxIdleConnsPerHost: l.Sizes.APIClients}
	defer transport.CloseIdleConnections()
	api := client.Through(replica.API.URL, transport)
	at, made := l.nextSecond(48*time.Hour), 0
	for _, kind := range []struct {
		name string
		send func(ctx context.Context, i int) error
	}{
		{"Creates of a job", func(ctx context.Context, i int) error {
			return exchange(ctx, api, http.MethodPost, "/v1/jobs", weekdays(at, i), http.StatusCreated)
		}},
		{"Reads of a job", func(ctx context.Context, i int) error {
			return exchange(ctx, api, http.MethodGet, fmt.Sprint("/v1/jobs/job-", i*7919%made), nil, http.StatusOK)
		}},
	} {
		l.say("%s: %d clients", kind.name, l.Sizes.APIClients)
		of := replica.measure(ctx, l, func() (burst, int) {
			before, postgres := cpu(replica.PID()), cpu(l.db.postmaster)
			n, perSecond := l.hammer(ctx, kind.send)
			return burst{
				perSecond: perSecond,
				postgres:  1e6 * (cpu(l.db.postmaster) - postgres) / float64(n),
				replica:   1e6 * (cpu(replica.PID()) - before) / float64(n),
			}, n
		})
		if made == 0 {
			made = of.n
		}
		of.kind, of.unit = kind.name, "request"
		all = append(all, of)
	}
	return all
}

// statements returns what the statements have cost since the last reset, the dearest first.
func (l *lab) statements(ctx context.Context) []statement {
	rows, _ := l.conn.Query(ctx, `
		SELECT left(regexp_replace(query, '\s+', ' ', 'g'), 160), calls::float8, 1000 * total_exec_time,
		       (shared_blks_hit + shared_blks_read)::float8, wal_bytes::float8
		FROM ledger.pg_stat_statements s
		WHERE calls > 0
		ORDER BY total_exec_time DESC`)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[statement])
	l.must(err)
	return found
}

// each divides what n pieces of work have cost.
func (of costs) each(n int) costs {
	of.n = n
	for i := range of.statements {
		s := &of.statements[i]
		s.Calls, s.Micros, s.Buffers, s.WAL =
			s.Calls/float64(n), s.Micros/float64(n), s.Buffers/float64(n), s.WAL/float64(n)
	}
	for i := range of.functions {
		of.functions[i].micros /= float64(n)
	}
	of.allocated.objects /= float64(n)
	of.allocated.bytes /= float64(n)
	return of
}
