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

	"punctual/httpapi/client"
	"punctual/httpapi/problem"
	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// Slots of a thousand jobs with every overlap policy are due at once, three times over. Meanwhile eight clients
// trigger, cancel and replay runs. There must be no deadlock, no double and no wedge.
func TestAThousandSlotsAtOnceWhileEverybodyMeddles(t *testing.T) {
	exhaustive(t, "takes a quarter of a minute")
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	fleet := []*process.Replica{serve(t, dsn), serve(t, dsn), serve(t, dsn)}
	w.Script("/fails", Answer{Status: 404}) // any answer, so that no circuit breaker opens
	w.Script("/slow", Answer{Delay: 300 * time.Millisecond})
	const jobs = 1000
	// If one of these never happened, the test raced nothing.
	kinds := []string{"manual", "replay", "cancelled", "skipped", "dead", "succeeded"}
	start := nextSecond(3 * time.Second)
	var specs []process.JobSpec
	for i := range jobs {
		specs = append(specs, job(fmt.Sprint("racer-", i), w.URL+[]string{"/prompt", "/slow", "/fails"}[i%3], process.JobSpec{
			"concurrency_policy": []string{"allow", "forbid", "replace", "wait"}[i%4],
			"schedule": map[string]any{
				"every":     "2s",
				"starts_at": start.UTC().Format(time.RFC3339),
				"ends_at":   start.Add(4 * time.Second).UTC().Format(time.RFC3339),
			},
			"retry": map[string]any{
				"max_attempts":    2,
				"initial_backoff": "50ms",
				"multiplier":      1,
				"max_backoff":     "1s",
			},
		}))
	}
	create(t, fleet[0].API, specs...)

	meddling, done := context.WithCancel(t.Context())
	defer done()
	var clients sync.WaitGroup
	for i := range 8 {
		clients.Go(func() {
			meddle(meddling, t, fleet[i%len(fleet)].API, rand.New(rand.NewPCG(rand.Uint64(), uint64(i))), jobs)
		})
	}
	conn := connect(t, dsn)
	const kindsMade = `SELECT count(DISTINCT k) FROM punctual.runs, unnest(ARRAY[trigger, status]) k WHERE k = ANY($1)`
	await(t, "the last slots, and a run of each kind", func() bool {
		return time.Now().After(start.Add(6*time.Second)) && query[int](t, conn, kindsMade, kinds) == len(kinds)
	})
	done()
	clients.Wait()
	f := atRest(t, dsn, w)
	verify(t, f, Conditions{SentOnce: true})
	if n := query[int](t, conn, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`); n != 0 {
		t.Errorf("%d deadlocks", n)
		if log, err := os.ReadFile(pgtest.Server(t).Log()); err == nil {
			t.Logf("Postgres says:\n%s", tail(string(log), 8<<10))
		}
	}
	made := map[string]int{}
	for _, r := range f.Runs {
		made[r.Trigger]++
		made[r.Status]++
	}
	t.Logf("runs by trigger and by status: %v", made)
	neverSaid(t, "a tick failed", fleet...)
	stop(t, fleet...)
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
		switch rng.IntN(4) {
		case 0, 1:
			status, err = api.Do(ctx, "POST", path+"/trigger", nil, nil)
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
