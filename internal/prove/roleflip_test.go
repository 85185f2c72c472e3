//prove:database

package prove

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	"punctual/internal/privatepg"
	"punctual/internal/process"
)

// flipRoles makes the server read-only for all sessions that there are, and lets new ones write. Clients see the same
// when the primary and a reader of a hosted cluster change roles while all sockets stay open. unflip undoes it.
func flipRoles(t testing.TB, server *privatepg.Server, dsn string) {
	t.Helper()
	administer(t, server, `ALTER DATABASE `+databaseOf(t, dsn)+` SET default_transaction_read_only = off`)
	configure(t, server, `default_transaction_read_only = on`)
}

func unflip(t testing.TB, server *privatepg.Server, dsn string) {
	t.Helper()
	configure(t, server, `default_transaction_read_only = off`)
	administer(t, server, `ALTER DATABASE `+databaseOf(t, dsn)+` RESET default_transaction_read_only`)
}

func databaseOf(t testing.TB, dsn string) string {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	must(t, err)
	return pgx.Identifier{config.Database}.Sanitize()
}

// A failover leaves sockets open to a reader. Within two heartbeats all connections are new, and everything is sent
// once.
//
// Claims, heartbeats, chores, reads and writes of callers.
func TestAFailoverThatLeavesSocketsOpenIsNoticed(t *testing.T) {
	t.Parallel()
	server, w := pgtest.NewServer(t, privatepg.Config{Fast: true}), newWitness(t)
	dsn := pgtest.Doomed(t, server)
	writable := dsn + "&target_session_attrs=read-write"
	fleet := []*process.Replica{serve(t, writable), serve(t, writable)}
	create(t, fleet[0].API, many(3, "job", w.URL+"/slots", process.JobSpec{"schedule": every("1s")})...)
	await(t, "the first slots", func() bool { return w.Len() > 0 })

	flipRoles(t, server, dsn)
	const within = 30 * time.Second // claims, heartbeats and callers each notice by themselves
	before := w.Len()
	awaitFor(t, within, "slots after the failover", func() bool { return w.Len() > before+20 })
	for _, r := range fleet {
		awaitFor(t, within, "a change through each replica", func() bool {
			status, _ := r.API.Do(t.Context(), "PATCH", "/v1/jobs/job-0", map[string]any{"description": "changed"}, nil)
			return status == 200
		})
	}
	ready(t, fleet...)
	if n := query[int](t, connect(t, dsn), `SELECT count(*) FROM punctual.replicas`); n != 2 {
		t.Errorf("%d replicas are registered, want 2", n)
	}
	for _, name := range []string{"job-0", "job-1", "job-2"} {
		do[any](t, fleet[1].API, "POST", "/v1/jobs/"+name+"/pause", nil)
	}
	verify(t, atRest(t, dsn, w), Conditions{SentOnce: true, AllSucceed: true})
	stopCalm(t, 200, fleet...)
}
