package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/internal/process"
)

// runIdle measures what an idle replica costs.
func runIdle(ctx context.Context, l *lab) {
	replica := l.serve(ctx)
	tomorrow := job("tomorrow", oneShot(l.nextSecond(24*time.Hour)), "http://127.0.0.1:9/", nil)
	l.must(process.Create(ctx, replica.API, []process.JobSpec{tomorrow}))
	// By then the work that follows a start is done.
	l.until(ctx, l.now().Add(min(5*time.Second, l.Sizes.IdleFor)))
	name, sql := l.counter(ctx)
	l.say("watching an idle replica for %s", l.Sizes.IdleFor)
	before := query[float64](ctx, l, sql)
	used, usedThere, began := cpu(replica.PID()), cpu(l.db.postmaster), time.Now()
	l.until(ctx, l.now().Add(l.Sizes.IdleFor))
	after := query[float64](ctx, l, sql)
	seconds := time.Since(began).Seconds()
	megabytes, _ := resident(replica.PID())
	l.figure(name, "1/s", atMost(3), (after-before-1)/seconds) // one is the count itself
	l.figure("resident", "MB", atMost(60), megabytes)
	l.figure("CPU of the replica", "ms/s", nil, 1000*(cpu(replica.PID())-used)/seconds)
	l.cpuFigure("CPU of Postgres", "ms/s", nil, 1000*(cpu(l.db.postmaster)-usedThere)/seconds)
}

// counter returns a query that counts statements, or transactions where the server keeps no statistics of statements.
func (l *lab) counter(ctx context.Context) (name, sql string) {
	const transactions = `
		SELECT (xact_commit + xact_rollback)::float8
		FROM pg_stat_database
		WHERE datname = current_database()`
	if l.db.private != nil { // our own server: we may create the extension
		_, _ = l.conn.Exec(ctx, `CREATE EXTENSION IF NOT EXISTS pg_stat_statements SCHEMA public`) // not every package has it
	}
	schema, err := tryQuery[string](ctx, l, `
		SELECT quote_ident(n.nspname)
		FROM pg_extension e
		JOIN pg_namespace n ON n.oid = e.extnamespace
		WHERE extname = 'pg_stat_statements'`)
	if errors.Is(err, pgx.ErrNoRows) {
		return "transactions", transactions
	}
	l.must(err)
	statements := fmt.Sprintf(`
		SELECT coalesce(sum(calls), 0)::float8
		FROM %s.pg_stat_statements
		WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND userid = current_user::regrole`, schema)
	if _, err := tryQuery[float64](ctx, l, statements); err != nil {
		return "transactions", transactions // it is there but not loaded
	}
	return "statements", statements
}
