package prove

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"punctual/internal/pgtest"
	"punctual/internal/process"
	"punctual/scheduler/domain"
)

// A job dies and recovers under two replicas. Its hook is told of each event once, and of nothing else.
func TestAHookIsToldOfADeathAndOfTheRecovery(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	fleet := []*process.Replica{serve(t, dsn), serve(t, dsn)}
	conn := connect(t, dsn)
	w.Script("/work", Answer{Status: 500}, Answer{Status: 500}, Answer{})
	w.Script("/hook", Answer{Status: 503}, Answer{}) // a notice is retried like any run
	create(t, fleet[0].API, job("fragile", w.URL+"/work", process.JobSpec{
		"concurrency_policy": "forbid", "retry": map[string]any{"max_attempts": 2, "initial_backoff": "10ms"},
		"notify": []any{map[string]any{"on": []string{"dead", "recovered"}, "url": w.URL + "/hook"}},
	}))
	create(t, fleet[0].API, job("silent", w.URL+"/silent", process.JobSpec{"retry": map[string]any{"max_attempts": 1}}))
	w.Script("/silent", Answer{Status: 500})
	triggerTo(t, fleet[0].API, "dead", "silent")
	triggerTo(t, fleet[0].API, "dead", "fragile")
	await(t, "the first notice", func() bool { return len(w.At("/hook")) == 1 })
	// The test does not wait for the default backoff of half a minute.
	await(t, "its second attempt", func() bool {
		execute(t, conn, `UPDATE punctual.ready SET due_at = now() WHERE due_at > now()`)
		return len(w.At("/hook")) == 2
	})
	triggerTo(t, fleet[1].API, "succeeded", "fragile")
	await(t, "the second notice", func() bool { return len(w.At("/hook")) == 3 })
	triggerTo(t, fleet[0].API, "succeeded", "fragile")
	f := atRest(t, dsn, w)
	verify(t, f, Conditions{SentOnce: true})
	if got, want := told(t, dsn, f, "/hook"), []string{"dead 1", "dead 1", "recovered 1"}; !slices.Equal(got, want) {
		t.Errorf("the hook was told %q, want %q", got, want)
	}
	if left := query[int](t, conn, `
		SELECT (SELECT count(*) FROM punctual.notices) +
		       (SELECT count(*) FROM punctual.notified WHERE failures > 0)`); left != 0 {
		t.Errorf("%d are left to be told, or fail still", left)
	}
	stop(t, fleet...)
}

// told returns the events in the requests to a path. It reads them from the bodies on record, and checks that the
// requests had these bodies.
func told(t *testing.T, dsn string, f Facts, path string) (all []string) {
	t.Helper()
	conn := connect(t, dsn)
	for _, q := range f.Requests {
		if q.Path != path {
			continue
		}
		body := query[[]byte](t, conn, `SELECT body FROM punctual.run_data WHERE run_id = $1`, q.Run)
		var n domain.News
		if err := json.Unmarshal(body, &n); err != nil || HashBody(body) != q.Body || q.Trigger != "notify" ||
			n.Job != "fragile" || q.Job != "fragile" {
			t.Errorf("%s of trigger %s: %s (%v)", q.Job, q.Trigger, body, err)
		}
		for _, e := range n.Events {
			all = append(all, fmt.Sprintf("%s %d", e.Event, e.Count))
		}
	}
	return all
}
