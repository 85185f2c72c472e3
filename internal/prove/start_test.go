//prove:database

package prove

import (
	"strings"
	"testing"

	"punctual/internal/pgtest"
	"punctual/internal/privatepg"
	"punctual/internal/process"
)

// launchPatient begins to start a replica that waits for its database.
func launchPatient(t *testing.T, dsn string) *process.Process {
	t.Helper()
	p, err := process.Launch(binary(t), []string{
		"DATABASE_URL=" + dsn, process.CallLoopback,
	}, "serve", "--log-format=json", "--listen=127.0.0.1:0", "--auth=none", "--database-wait=10m")
	must(t, err)
	watch(t, p)
	return p
}

// says waits until a process has said a text.
func says(t testing.TB, p *process.Process, text string) {
	t.Helper()
	await(t, "the replica to say "+text, func() bool {
		if p.Ended() {
			t.Fatalf("the replica ended before it said %q:\n%s", text, p.Output())
		}
		return strings.Contains(p.Output(), text)
	})
}

// A replica that starts at a reader waits for its promotion.
//
// The name may lead to another server, the next primary, later.
func TestAReplicaThatStartsAtAReaderWaitsForItsPromotion(t *testing.T) {
	t.Parallel()
	primary := pgtest.NewServer(t, privatepg.Config{})
	dsn := pgtest.Doomed(t, primary)
	standby := pgtest.NewStandby(t, primary, "")
	r := launchPatient(t, pgtest.TCP(t, standby, dsn))
	says(t, r, "the database takes no writes: it is read-only; trying again")
	failOver(t, primary, standby)
	says(t, r, "scheduler started")
}

// A failover comes during a start. The replica waits until it can write.
func TestAReplicaWhoseRegistrationIsRefusedWaitsForWrites(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn := connect(t, dsn)
	execute(t, conn, `
		CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		    RAISE 'cannot execute INSERT in a read-only transaction' USING ERRCODE = 'read_only_sql_transaction';
		END $$`)
	execute(t, conn, `
		CREATE TRIGGER refuse BEFORE INSERT ON punctual.queues FOR EACH STATEMENT EXECUTE FUNCTION public.refuse()`)
	r := launchPatient(t, dsn)
	says(t, r, "the database takes no writes: it is read-only; trying again")
	execute(t, conn, `DROP TRIGGER refuse ON punctual.queues`)
	says(t, r, "scheduler started")
}

// The answer to any statement of a start is lost. The replica starts.
func TestAReplicaWhoseConnectionIsLostStartsAllTheSame(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	proxy, through := pgtest.NewProxy(t, pgtest.TCP(t, pgtest.Server(t), dsn))
	statements := []string{
		"to_regclass", "functions_of_tenants", "SELECT FROM punctual.cancels", "punctual.data_keys", "has_partition",
		"FROM punctual.deployment FOR NO KEY UPDATE", "INSERT INTO punctual.queues", "pg_walfile_name",
		"INSERT INTO punctual.replicas",
	}
	proxy.CutAfter(statements...)
	says(t, launchPatient(t, through), "scheduler started")
	if n := proxy.Cuts(); n != len(statements) {
		t.Errorf("%d connections were cut, want %d: after %q", n, len(statements), statements[n:])
	}
	if n := query[int](t, connect(t, dsn), `SELECT count(*) FROM punctual.replicas`); n != 1 {
		t.Errorf("%d replicas are registered, want 1", n)
	}
}
