//prove:database

package prove

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"punctual/httpapi/client"
	"punctual/internal/pgtest"
	"punctual/internal/privatepg"
	"punctual/internal/process"
)

// acknowledged are the writes of a caller that the API answered with 2xx.
type acknowledged struct{ created, edited, triggered []string }

// write creates, edits and triggers jobs until a request fails.
func (a *acknowledged) write(
	ctx context.Context, api *client.Client, caller int, spec process.JobSpec, n *atomic.Int64,
) {
	for i := 0; ; i++ {
		name := fmt.Sprintf("caller-%d-%d", caller, i)
		if _, err := api.Do(ctx, "PUT", "/v1/jobs/"+name, spec, nil); err != nil {
			return
		}
		a.created = append(a.created, name)
		if _, err := api.Do(ctx, "PATCH", "/v1/jobs/"+name, map[string]any{"description": "edited"}, nil); err != nil {
			return
		}
		a.edited = append(a.edited, name)
		var run struct{ ID string }
		if _, err := api.Do(ctx, "POST", "/v1/jobs/"+name+"/trigger", nil, &run); err != nil {
			return
		}
		a.triggered = append(a.triggered, run.ID)
		n.Add(1)
	}
}

// Callers write until Postgres crashes. Every acknowledged write is there afterwards.
func TestAcknowledgedWritesSurviveACrash(t *testing.T) {
	t.Parallel()
	server, w := pgtest.NewServer(t, privatepg.Config{}), newWitness(t)
	dsn := pgtest.Database(t, server)
	r := serve(t, dsn)
	var callers [4]acknowledged
	var writing sync.WaitGroup
	var n atomic.Int64
	for i := range callers {
		spec := process.JobSpec{"target": map[string]any{"url": w.URL + "/ok"}}
		writing.Go(func() { callers[i].write(t.Context(), r.API, i, spec, &n) })
	}
	await(t, "writes by all callers", func() bool { return n.Load() >= 40 })
	must(t, server.Crash())
	writing.Wait()
	must(t, server.Restart(t.Context()))
	conn := connect(t, dsn)
	for i, a := range callers {
		for _, kind := range []struct {
			what, count  string
			acknowledged []string
		}{
			{"creates", `SELECT count(*) FROM punctual.jobs WHERE name = ANY($1)`, a.created},
			{"edits", `SELECT count(*)
				FROM punctual.jobs j JOIN punctual.job_versions v ON v.job_id = j.id AND v.version = j.version
				WHERE j.name = ANY($1) AND v.definition ->> 'description' = 'edited'`, a.edited},
			{"triggers", `SELECT count(*) FROM punctual.runs WHERE id = ANY($1::text[]::uuid[])`, a.triggered},
		} {
			if n := query[int](t, conn, kind.count, kind.acknowledged); n != len(kind.acknowledged) {
				t.Errorf("caller %d: %d of %d acknowledged %s are there", i, n, len(kind.acknowledged), kind.what)
			}
		}
	}
	t.Logf("%d rounds of writes", n.Load())
	stop(t, r)
}
