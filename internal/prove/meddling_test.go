//prove:claims

package prove

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/httpapi/client"
	"punctual/httpapi/problem"
	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// 1,000 slots are due at once, three times, among triggers, cancels and replays. Nothing deadlocks, doubles or is
// stuck.
//
// They are of every overlap policy.
func TestAThousandSlotsAtOnceWhileEverybodyMeddles(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	fleet := []*process.Replica{serve(t, dsn), serve(t, dsn), serve(t, dsn)}
	const jobs = 1000
	// If one of these never happened, the test raced nothing.
	kinds := []string{"manual", "replay", "cancelled", "skipped", "dead", "succeeded"}
	start := nextSecond(3 * time.Second)
	create(t, fleet[0].API, racers(w, jobs, process.JobSpec{
		"schedule": everyUntil("2s", start, start.Add(4*time.Second)),
		"retry": map[string]any{
			"max_attempts":    2,
			"initial_backoff": "50ms",
			"multiplier":      1,
			"max_backoff":     "1s",
		},
	})...)

	done := meddlers(t, 8, fleet, jobs)
	conn := connect(t, dsn)
	const kindsMade = `SELECT count(DISTINCT k) FROM punctual.runs, unnest(ARRAY[trigger, status]) k WHERE k = ANY($1)`
	await(t, "the last slots, and a run of each kind", func() bool {
		return time.Now().After(start.Add(6*time.Second)) && query[int](t, conn, kindsMade, kinds) == len(kinds)
	})
	done()
	f := atRest(t, dsn, w)
	verify(t, f, Conditions{SentOnce: true})
	noDeadlock(t, conn)
	made := map[string]int{}
	for _, r := range f.Runs {
		made[r.Trigger]++
		made[r.Status]++
	}
	t.Logf("runs by trigger and by status: %v", made)
	neverSaid(t, "a tick failed", fleet...)
	stop(t, fleet...)
}

// racers returns jobs racer-0, racer-1, and so on, with every overlap policy and all kinds of answers.
func racers(w *Witness, n int, more process.JobSpec) (jobs []process.JobSpec) {
	w.Script("/fails", Answer{Status: 404}) // any answer, so that no circuit breaker opens
	w.Script("/slow", Answer{Delay: 300 * time.Millisecond})
	for i := range n {
		path := []string{"/prompt", "/slow", "/fails"}[i%3]
		jobs = append(jobs, job(fmt.Sprint("racer-", i), w.URL+path, more))
	}
	return inTurn(jobs, "allow", "forbid", "replace", "wait")
}

// meddlers lets clients meddle with racers through all replicas of a fleet, until done is called.
func meddlers(t *testing.T, n int, fleet []*process.Replica, jobs int, fine ...problem.Code) (done func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for i := range n {
		clients.Go(func() {
			rng := rand.New(rand.NewPCG(rand.Uint64(), uint64(i)))
			meddle(ctx, t, fleet[i%len(fleet)].API, rng, jobs, fine...)
		})
	}
	done = func() { cancel(); clients.Wait() }
	t.Cleanup(done)
	return done
}

// noDeadlock checks that no deadlock happened in a database of the shared server.
func noDeadlock(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	if n := query[int](t, conn, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`); n != 0 {
		t.Errorf("%d deadlocks", n)
		if log, err := os.ReadFile(pgtest.Server(t).Log()); err == nil {
			t.Logf("Postgres says:\n%s", tail(string(log), 8<<10))
		}
	}
}

// meddle triggers, cancels and replays at random. A conflict is a correct answer; a server error is not, unless it has
// one of the codes that are fine.
func meddle(ctx context.Context, t *testing.T, api *client.Client, rng *rand.Rand, jobs int, fine ...problem.Code) {
	type list struct{ Data []struct{ ID, Run string } }
	for ctx.Err() == nil {
		path := fmt.Sprint("/v1/jobs/racer-", rng.IntN(jobs))
		var found list
		var status int
		var err error
		switch rng.IntN(5) {
		case 0, 1:
			status, err = api.Do(ctx, "POST", path+"/trigger", nil, nil)
		case 4:
			status, err = api.Do(ctx, "POST", path+"/trigger", map[string]any{
				"key": fmt.Sprint(rng.IntN(3)), "on_conflict": "replace", "delay": fmt.Sprintf("%dms", rng.IntN(50)),
			}, nil)
		case 2:
			if status, err = api.Do(ctx, "GET", path+"/runs?limit=1", nil, &found); err == nil && len(found.Data) > 0 {
				status, err = api.Do(ctx, "POST", "/v1/runs/"+found.Data[0].ID+"/cancel", nil, nil)
			}
		case 3:
			if status, err = api.Do(ctx, "GET", "/v1/dead-letters?limit=20", nil, &found); err == nil && len(found.Data) > 0 {
				status, err = api.Do(ctx, "POST", "/v1/dead-letters/"+found.Data[rng.IntN(len(found.Data))].Run+"/replay", nil, nil)
			}
		}
		is := func(code problem.Code) bool { return client.Is(err, code) }
		if err != nil && status != 409 && ctx.Err() == nil && !slices.ContainsFunc(fine, is) {
			t.Error(err)
			return
		}
	}
}
