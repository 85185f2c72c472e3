package prove

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/delivery"
	"punctual/store/privatepg"
	"punctual/store/storetest"
)

const (
	burstJobs  = 50_000
	burstSlots = 500 // worker slots; also the concurrency of the bare loop
	burstBody  = `{"range":"yesterday","kind":"invoices"}`
)

// BenchmarkBurst measures 50,000 jobs that are due at the same instant, on one replica and a durable
// Postgres, from that instant until the last lease is gone: every request answered and every run's end
// committed. The ratio is to a bare loop of the same client that posts the same requests to the same
// target, with no database.
func BenchmarkBurst(b *testing.B) {
	server := storetest.NewServer(b, privatepg.Config{})
	dsn := storetest.Database(b, server)
	conn := connect(b, dsn)
	for _, setting := range []string{"fsync", "synchronous_commit"} {
		if got := query[string](b, conn, "SELECT current_setting($1)", setting); got != "on" {
			b.Fatalf("%s is %s: this would measure nothing", setting, got)
		}
	}
	replica, to := serve(b, dsn, fmt.Sprintf("--queues=default=%d", burstSlots)), startTarget(b)
	round := 0
	for b.Loop() {
		round++
		figures := burst(b, conn, server, replica, to, round)
		client, service := cpuStat(os.Getpid()).used, cpuOf(to.PID())
		bare := bareLoop(b, to)
		figures["bare-client-µs/run"] = float64((cpuStat(os.Getpid()).used - client).Microseconds()) / burstJobs
		figures["target-µs/run"] = float64((cpuOf(to.PID()) - service).Microseconds()) / burstJobs
		figures["bare/s"] = burstJobs / bare.Seconds()
		figures["ratio"] = figures["runs/s"] / figures["bare/s"]
		record(b, figures)
	}
	stop(b, replica)
}

// burst creates the jobs, waits for their instant, and measures until all is over.
func burst(b *testing.B, conn *pgx.Conn, server *privatepg.Server, replica *Replica, to *target, round int) map[string]float64 {
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
	defer cancel()
	due := nextSecond(20 * time.Second)
	jobs := make([]JobSpec, burstJobs)
	for i := range jobs {
		jobs[i] = job(fmt.Sprintf("burst-%d-%d", round, i), to.url+"/hook", JobSpec{"schedule": map[string]any{"at": due.UTC().Format(time.RFC3339)}})
		jobs[i]["target"].(map[string]any)["body"] = map[string]any{"range": "yesterday", "kind": "invoices"}
	}
	began := time.Now()
	create(b, replica.API, jobs...)
	b.Logf("%d jobs created in %s", len(jobs), time.Since(began).Round(time.Millisecond))
	if time.Until(due) < time.Second {
		b.Fatal("the jobs were due before all of them were there: this machine is too busy")
	}
	before := sent(b, ctx, to)
	until := func(what string, every time.Duration, condition func() bool) { awaitIn(ctx, b, what, every, condition) }
	until("the instant", time.Millisecond, func() bool { return time.Until(due) < 100*time.Millisecond })
	postgres, process, wal := cpuOf(server.PID()), cpuOf(replica.PID()), query[int64](b, conn, walSQL)
	until("all requests", 20*time.Millisecond, func() bool { return sent(b, ctx, to)-before >= burstJobs })
	until("the last lease", 5*time.Millisecond, func() bool { return query[bool](b, conn, "SELECT NOT EXISTS (SELECT FROM punctual.claims)") })
	took := time.Since(due)
	postgres, process, wal = cpuOf(server.PID())-postgres, cpuOf(replica.PID())-process, query[int64](b, conn, walSQL)-wal

	succeeded := query[int](b, conn, `SELECT count(*) FROM punctual.runs WHERE scheduled_for = $1 AND status = 'succeeded' AND attempt = 1`, due)
	if n := sent(b, ctx, to) - before; succeeded != burstJobs || n != burstJobs {
		b.Fatalf("%d runs succeeded and %d requests were sent, want %d", succeeded, n, burstJobs)
	}
	const perSecond = `SELECT array_agg(n ORDER BY s) FROM (SELECT floor(extract(epoch FROM finished_at - scheduled_for)) AS s, count(*) AS n
		FROM punctual.runs WHERE scheduled_for = $1 GROUP BY s) AS seconds`
	b.Logf("runs finished in each second: %v", query[[]int64](b, conn, perSecond, due))
	const updates = `SELECT coalesce(sum(%s), 0)::bigint FROM pg_stat_user_tables WHERE schemaname = 'punctual' AND relname LIKE 'runs\_2%%'`
	until("the statistics", 100*time.Millisecond, func() bool { // backends report them when they are idle
		return query[int64](b, conn, fmt.Sprintf(updates, "n_tup_upd")) >= int64(round)*burstJobs
	})
	all, hot := query[int64](b, conn, fmt.Sprintf(updates, "n_tup_upd")), query[int64](b, conn, fmt.Sprintf(updates, "n_tup_hot_upd"))
	return map[string]float64{
		"runs/s":         burstJobs / took.Seconds(),
		"pg-µs/run":      float64(postgres.Microseconds()) / burstJobs,
		"replica-µs/run": float64(process.Microseconds()) / burstJobs,
		"wal-B/run":      float64(wal) / burstJobs,
		"hot-%":          100 * float64(hot) / float64(max(all, 1)),
	}
}

const walSQL = `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint`

func sent(b *testing.B, ctx context.Context, to *target) int { //nolint:revive // b first, as in every helper
	n, err := to.count(ctx)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// bareLoop posts as many requests as the burst does, with as many at a time, and returns how long it took.
func bareLoop(b *testing.B, to *target) time.Duration {
	client := delivery.New(delivery.Config{UserAgent: "punctual/" + BinaryVersion})
	defer client.Close()
	where, err := url.Parse(to.url + "/hook")
	if err != nil {
		b.Fatal(err)
	}
	header := http.Header{"Content-Type": {"application/json"}}
	numbers := make(chan int, burstSlots)
	var failures sync.Map
	var working sync.WaitGroup
	began := time.Now()
	for range burstSlots {
		working.Go(func() {
			for i := range numbers {
				r := client.Send(b.Context(), delivery.Request{Method: "POST", URL: where, Header: header, Body: []byte(burstBody), Timeout: 30 * time.Second, Extra: attemptHeaders(i, began)})
				if !r.OK() {
					failures.Store(r.Error, true)
				}
			}
		})
	}
	for i := range burstJobs {
		numbers <- i
	}
	close(numbers)
	working.Wait()
	took := time.Since(began)
	failures.Range(func(text, _ any) bool { b.Errorf("a bare request failed: %s", text); return true })
	return took
}

// attemptHeaders are like those that every attempt carries.
func attemptHeaders(i int, at time.Time) []delivery.Header {
	id := uuid.New().String()
	return []delivery.Header{
		{Name: "Webhook-Id", Value: id},
		{Name: "Idempotency-Key", Value: id + ":" + strconv.FormatInt(at.Unix(), 10)},
		{Name: "Punctual-Job", Value: "burst-1-" + strconv.Itoa(i)},
		{Name: "Punctual-Run", Value: id},
		{Name: "Punctual-Attempt", Value: "1"},
		{Name: "Punctual-Trigger", Value: "schedule"},
		{Name: "Punctual-Scheduled-For", Value: at.UTC().Format(time.RFC3339Nano)},
		{Name: "Punctual-Fencing-Token", Value: strconv.Itoa(i)},
	}
}

func query[T any](t testing.TB, conn *pgx.Conn, sql string, args ...any) (v T) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}
