//prove:targets

package prove

import (
	"fmt"
	"testing"
	"time"

	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// Targets are down for longer than their jobs' patience. No run dies that is due after their return.
//
// They are down for 3, 6 and 40 s, and two replicas call them. What was due before does not die without a request to
// its host since.
func TestRunsOutlastATargetThatComesBack(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	fleet := []*process.Replica{serve(t, dsn), serve(t, dsn)}
	type target struct {
		name string
		down time.Duration
		port *deadPort
		up   *Witness
		back time.Time
	}
	targets := []*target{
		{name: "short", down: 3 * time.Second},
		{name: "longer", down: 6 * time.Second},
		{name: "long", down: 40 * time.Second},
		{name: "default", down: 40 * time.Second},
	}
	began := time.Now()
	for _, to := range targets {
		retry := map[string]any{"max_attempts": 4, "initial_backoff": "1s", "max_backoff": "3s"}
		if to.name == "default" {
			retry = map[string]any{"max_attempts": 3}
		}
		to.port = newDeadPort(t)
		create(t, fleet[0].API, many(5, to.name, "http://"+to.port.addr+"/hook",
			process.JobSpec{"schedule": every("1s"), "retry": retry})...)
	}
	for _, to := range targets {
		await(t, fmt.Sprintf("%s to be down for %s", to.name, to.down), func() bool { return time.Since(began) > to.down })
		to.up = to.port.open()
		to.back = time.Now()
	}
	for _, to := range targets {
		await(t, to.name+" to be called again", func() bool { return to.up.Len() >= 100 })
		for i := range 5 {
			do[any](t, fleet[0].API, "POST", fmt.Sprintf("/v1/jobs/%s-%d/pause", to.name, i), nil)
		}
	}
	f := atRest(t, dsn, w)
	for _, to := range targets {
		f.Requests = append(f.Requests, to.up.Requests()...)
	}
	verify(t, f, Conditions{})
	conn := connect(t, dsn)
	for _, to := range targets {
		const dead = `
			SELECT count(*) FROM punctual.runs r JOIN punctual.jobs j ON j.id = r.job_id
			WHERE j.name LIKE $1 || '-%' AND r.status = 'dead' AND r.due_at > $2`
		n, before := query[int](t, conn, dead, to.name, to.back), query[int](t, conn, dead, to.name, began)
		if n > 0 {
			t.Errorf("%s: %d runs that were due after the return of their target are dead", to.name, n)
		}
		t.Logf("%s: down for %s, %d runs that were due meanwhile are dead", to.name, to.down, before)
	}
	stop(t, fleet...)
}
