package prove

import (
	"context"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/httpapi/client"
	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// core is one test for each promise of docs/guarantees.md, in the order of its table. `make test` runs these, as -short
// does unless -run names others. `make prove` runs all.
var core = []string{
	"TestThreeReplicasRunEachSlotExactlyOnce",
	"TestRollingRestartLosesNothingAndSendsNothingTwice",
	"TestFailedAttemptsEndAsTheyShould",
	"TestAFrozenReplicaIsFencedOff",
	"TestStepsOfTheDatabasesClockFireNothingEarlyOrTwice",
	"TestAKilledReplicaIsTakenOver",
	"TestAcknowledgedWritesSurviveACrash",
}

func TestMain(m *testing.M) {
	flag.Parse()
	if run := flag.Lookup("test.run").Value; testing.Short() && run.String() == "" {
		_ = run.Set("^(" + strings.Join(core, "|") + ")$") // a string flag takes any value
	}
	code := m.Run()
	RemoveBinaries()
	os.Exit(code)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}

// patience bounds every wait. It is long enough for a busy machine under the race detector.
const patience = 2 * time.Minute

// await polls until the condition holds: less often the longer it takes, because a condition may cost a call.
func await(t testing.TB, what string, condition func() bool) {
	t.Helper()
	awaitFor(t, patience, what, condition)
}

// awaitFor is await with another limit.
func awaitFor(t testing.TB, limit time.Duration, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for began := time.Now(); !condition(); {
		select {
		case <-time.After(min(5*time.Millisecond+time.Since(began)/10, 50*time.Millisecond)):
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// mostProgress bounds how long work is waited for that goes on. A soak leaves a backlog that is longer than itself:
// jobs that fire each second and catch up one slot at a time need two seconds for a slot.
func mostProgress() time.Duration {
	length, _ := time.ParseDuration(os.Getenv("SOAK"))
	return 5*patience + 2*length
}

// awaitProgress is awaitFor as long as there is progress: a backlog takes the longer, the slower the machine is.
func awaitProgress(t testing.TB, what string, condition func() (done bool, progress int64)) {
	t.Helper()
	var last int64
	moved := time.Now()
	awaitFor(t, mostProgress(), what, func() bool {
		done, progress := condition()
		if progress != last {
			last, moved = progress, time.Now()
		} else if !done && time.Since(moved) > patience {
			t.Fatalf("waited in vain for %s: nothing has happened for %s", what, patience)
		}
		return done
	})
}

// pass lets time pass that the test is about, such as an outage.
func pass(t testing.TB, d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

// binary returns the path of the real binary. In `make prove` it has the race detector, as this test has. In `make race`
// the packages' own tests have it.
func binary(t testing.TB) string {
	t.Helper()
	path, err := Build(t.Context(), Variant{Race: raceDetector && !testing.Short()})
	must(t, err)
	return path
}

// serve starts a replica for the test. It is killed at the end of the test unless it was stopped, and shows its log if
// the test failed.
func serve(t testing.TB, dsn string, flags ...string) *process.Replica {
	t.Helper()
	return serveBinary(t, binary(t), dsn, nil, flags...)
}

// serveBinary is serve for another binary than today's, or with more in its environment.
func serveBinary(t testing.TB, binary, dsn string, env []string, flags ...string) *process.Replica {
	t.Helper()
	env = append(env, "DATABASE_URL="+dsn, process.CallLoopback)
	args := []string{"serve", "--log-format=json", "--listen=127.0.0.1:0", "--auth=none"}
	return launch(t, binary, env, append(args, flags...)...)
}

// launch starts a replica for the test, as serve does, with the given environment and arguments.
func launch(t testing.TB, path string, env []string, args ...string) *process.Replica {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := process.Start(ctx, path, env, args)
	must(t, err)
	watch(t, r.Process)
	return r
}

// watch kills a process at the end of the test.
func watch(t testing.TB, p *process.Process) {
	t.Cleanup(func() {
		p.Kill()
		out := p.Output()
		if strings.Contains(out, "DATA RACE") {
			t.Errorf("process %d has a data race", p.PID())
		}
		if t.Failed() {
			t.Logf("process %d said:\n%s", p.PID(), tail(out, 8<<10))
		}
	})
}

// ended waits for a process to end by itself, and returns its exit code; -1 if a signal ended it.
func ended(t testing.TB, what string, p *process.Process) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	code, err := p.Wait(ctx)
	if err != nil {
		t.Fatalf("waited in vain for %s to end: %v; it said:\n%s", what, err, tail(p.Output(), 8<<10))
	}
	return code
}

// succeed runs a program to its end, which must be a success, and returns its output.
func succeed(t testing.TB, path string, env []string, args ...string) string {
	t.Helper()
	p, err := process.Launch(path, env, args...)
	must(t, err)
	watch(t, p)
	what := filepath.Base(path) + " " + strings.Join(args, " ")
	if code := ended(t, what, p); code != 0 {
		t.Fatalf("%s: exit code %d:\n%s", what, code, p.Output())
	}
	return p.Output()
}

// punctual runs a command of the binary, which must succeed, and returns its output.
func punctual(t testing.TB, dsn string, args ...string) string {
	t.Helper()
	return succeed(t, binary(t), []string{"DATABASE_URL=" + dsn}, args...)
}

// within returns the next value of a channel, or fails the test after patience.
func within[T any](t testing.TB, what string, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
	}
	return v
}

func stop(t testing.TB, replicas ...*process.Replica) {
	t.Helper()
	for _, r := range replicas {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		if err := r.Stop(ctx); err != nil {
			t.Errorf("stopping replica %d: %v", r.PID(), err)
		}
		cancel()
	}
}

// neverSaid checks that no replica has written a phrase to its log.
func neverSaid(t testing.TB, phrase string, replicas ...*process.Replica) {
	t.Helper()
	for _, r := range replicas {
		if out := r.Output(); strings.Contains(out, phrase) {
			t.Errorf("replica %d says %q:\n%s", r.PID(), phrase, tail(out, 4<<10))
		}
	}
}

func tail(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
}

// do calls the API, and the call must succeed.
func do[T any](t testing.TB, a *client.Client, method, path string, in any) T {
	t.Helper()
	var out T
	_, err := a.Do(t.Context(), method, path, in, &out)
	must(t, err)
	return out
}

// ask sends a request with headers such as "Accept: text/plain", and returns the status and the body of the answer.
func ask(t testing.TB, method, url, body string, headers ...string) (status, answer string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	must(t, err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	must(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(t, err)
	return response.Status, string(text)
}

func connect(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgtest.Connect(t.Context(), dsn)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// whatIsLeft describes what keeps a deployment from rest.
const whatIsLeft = `
SELECT coalesce(string_agg(what, E'\n'), '') FROM (
    (SELECT 'claim ' || c::text AS what FROM punctual.claims c LIMIT 5)
    UNION ALL (SELECT 'ready ' || y::text FROM punctual.ready y LIMIT 5)
    UNION ALL (SELECT 'overdue ' || o::text FROM punctual.overdue o LIMIT 5)
    UNION ALL (SELECT 'run ' || r::text FROM punctual.runs r WHERE finished_at IS NULL LIMIT 5)
    UNION ALL (SELECT 'operation ' || o::text FROM punctual.operations o WHERE state = 'running' LIMIT 5)) left_over`

// atRest waits until no run is waiting or in flight and no operation has runs to order, and then reads the facts.
func atRest(t testing.TB, dsn string, w *Witness) Facts {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), mostProgress()+patience) // for the wait, and for reading
	defer cancel()
	conn := connect(t, dsn)
	defer func() {
		var left string
		if t.Failed() && conn.QueryRow(context.WithoutCancel(ctx), whatIsLeft).Scan(&left) == nil {
			t.Logf("left: %s", left)
		}
	}()
	awaitProgress(t, "everything to come to rest", func() (done bool, progress int64) {
		var busy bool
		err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM punctual.claims) OR EXISTS (SELECT FROM punctual.ready)
			OR EXISTS (SELECT FROM punctual.overdue) OR EXISTS (SELECT FROM punctual.runs WHERE finished_at IS NULL)
			OR EXISTS (SELECT FROM punctual.schedules WHERE enabled AND scheduled_for <= now()) -- also those put off
			OR EXISTS (SELECT FROM punctual.dated) OR EXISTS (SELECT FROM punctual.operations WHERE state = 'running'),
			(SELECT last_value FROM punctual.fences)`).Scan(&busy, &progress)
		if err != nil {
			t.Fatal(err)
		}
		return !busy, progress
	})
	f, err := ReadFacts(ctx, conn, w.Requests())
	must(t, err)
	return f
}

// verify checks the facts and reports every violation.
func verify(t testing.TB, f Facts, c Conditions) {
	t.Helper()
	if c.Settle == 0 {
		c.Settle = 2 * time.Second
	}
	for _, v := range Check(f, c) {
		t.Error(v)
	}
	t.Logf("checked %d jobs, %d runs, %d requests", len(f.Jobs), len(f.Runs), len(f.Requests))
}

// proven checks that `punctual verify` finds no violation either.
func proven(t testing.TB, dsn string) {
	t.Helper()
	punctual(t, dsn, "verify", "--grace=5s")
}

func execute(t testing.TB, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// query returns the value of a query for one row with one column.
func query[T any](t testing.TB, conn *pgx.Conn, sql string, args ...any) (v T) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// queryAll returns the values of a query for any number of such rows.
func queryAll[T any](t testing.TB, conn *pgx.Conn, sql string) []T {
	t.Helper()
	rows, err := conn.Query(t.Context(), sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	values, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return values
}
