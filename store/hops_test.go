package store_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/jobs"
	"punctual/store/letters"
	"punctual/store/limits"
	"punctual/store/replicas"
)

// sleeper is a store whose replica finds work only if it is woken, or right after a claim. Its heartbeats ask for no
// chore. So whatever is done was asked for by the commit that made it due.
type sleeper struct {
	deaf
	woken chan struct{}
	awake atomic.Bool
}

func sleep(t *testing.T, c *replicas.Replicas) *sleeper {
	s := &sleeper{deaf: deaf{c}, woken: make(chan struct{}, 1)}
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	go func() {
		for {
			select {
			case <-c.Wake():
				s.awake.Store(true)
				s.woken <- struct{}{}
			case <-ctx.Done():
				return
			}
		}
	}()
	return s
}

func (s *sleeper) Wake() <-chan struct{} { return s.woken }

func (s *sleeper) NextDue(ctx context.Context, into scheduler.LookInto, ahead bool) (scheduler.Upcoming, error) {
	awake := s.awake.Swap(false)
	u, err := s.Claims.NextDue(ctx, into, ahead)
	if !awake {
		u = scheduler.Upcoming{Now: u.Now}
	}
	return u, err
}

func (s *sleeper) ClaimReady(ctx context.Context, c scheduler.Claim) (domain.Batch, error) {
	b, err := s.Claims.ClaimReady(ctx, c)
	s.awake.Store(s.awake.Load() || b.Settled > 0)
	return b, err
}

// slow is a target that answers requests to /slow once they are released.
type slow struct {
	*httptest.Server
	free chan struct{}
}

func slowly(t *testing.T) slow {
	s := slow{free: make(chan struct{})}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			select {
			case <-s.free:
			case <-r.Context().Done():
			}
		}
		if r.URL.Path == "/broken" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s slow) release() { close(s.free) }

func (s slow) at(path string) Option {
	return func(d *jobspec.Definition) {
		if d.Target.URL = s.URL + path; len(d.Steps) == 0 {
			return
		}
		d.Target.URL = ""
		for i := range d.Steps {
			if d.Steps[i].Approval == nil {
				d.Steps[i].Target.URL = s.URL + path
			}
		}
	}
}

// Whatever a commit makes due wakes the loop or asks for the chore that does: a replica that never looks by itself does
// it all. (A successor at a gate began with the next look, up to a second after its turn had come.)
func TestWhatACommitMakesDueBeginsWithoutALook(t *testing.T) {
	t.Parallel()
	const sent, parked = `SELECT count(*) = 1 FROM punctual.runs WHERE job_id = $1 AND status = 'running'`,
		`SELECT count(*) = $2 FROM punctual.ready WHERE job_id = $1 AND waits IN ('gate', 'limit')`
	ended := func(c Fixture, job uuid.UUID, n int) {
		c.T.Helper()
		c.Until("the runs to succeed", `SELECT count(*) = $2 FROM punctual.runs WHERE job_id = $1 AND status = 'succeeded'`,
			job, n)
	}
	// behind triggers a job again while a run of it is being sent. The others wait.
	behind := func(c Fixture, to slow, n int, options ...Option) uuid.UUID {
		c.T.Helper()
		job := c.Create("a", append(options, Never, to.at("/slow"))...).ID
		c.Trigger("a")
		c.Until("the first run to be sent", sent, job)
		for range n {
			c.Trigger("a")
		}
		c.Until("the others to wait", parked, job, n)
		return job
	}
	limited := func(d *jobspec.Definition) { d.Limits = []string{"one"} }
	for name, hop := range map[string]func(c Fixture, to slow){
		"queue": func(c Fixture, to slow) {
			job := behind(c, to, 3, Overlapping(jobspec.PolicyQueue))
			to.release()
			ended(c, job, 4)
		},
		"wait": func(c Fixture, to slow) {
			job := behind(c, to, 1, Overlapping(jobspec.PolicyWait))
			to.release()
			ended(c, job, 2)
		},
		"replace": func(c Fixture, to slow) {
			job := c.Create("a", Never, to.at("/slow"), Replacing).ID
			c.Trigger("a")
			c.Until("the first run to be sent", sent, job)
			c.Trigger("a")
			c.Until("the first run to be asked to end", `SELECT count(*) = 1 FROM punctual.cancels`)
			to.release()
			ended(c, job, 1)
		},
		"limit": func(c Fixture, to slow) {
			_, _, err := c.Limits.Put(t.Context(), c.Tenant, "one", limits.Settings{MaxRunning: new(1)})
			c.Must(err)
			job := behind(c, to, 3, limited)
			to.release()
			ended(c, job, 4)
		},
		"a limit that is raised": func(c Fixture, to slow) {
			_, _, err := c.Limits.Put(t.Context(), c.Tenant, "one", limits.Settings{MaxRunning: new(1)})
			c.Must(err)
			job := behind(c, to, 1, limited)
			_, _, err = c.Limits.Put(t.Context(), c.Tenant, "one", limits.Settings{MaxRunning: new(2)})
			c.Must(err)
			c.Until("both runs to be sent", `SELECT count(*) = 2 FROM punctual.runs WHERE job_id = $1 AND status = 'running'`,
				job)
			to.release()
			ended(c, job, 2)
		},
		"a policy that changes": func(c Fixture, to slow) {
			job := behind(c, to, 1, Overlapping(jobspec.PolicyQueue))
			c.Edit("a", Overlapping(jobspec.PolicyAllow))
			c.Until("both runs to be sent", `SELECT count(*) = 2 FROM punctual.runs WHERE job_id = $1 AND status = 'running'`,
				job)
			to.release()
			ended(c, job, 2)
		},
		"a cancel": func(c Fixture, to slow) {
			job := c.Create("a", Never, to.at("/broken"), Overlapping(jobspec.PolicyQueue)).ID
			first := c.Trigger("a")
			c.Until("the first run to fail", `SELECT status = 'retrying' FROM punctual.runs WHERE id = $1`, first.ID)
			c.Edit("a", to.at("/"))
			c.Trigger("a")
			c.Until("the second run to wait", parked, job, 1)
			c.Cancel(first.ID)
			ended(c, job, 1)
		},
		"a delete": func(c Fixture, to slow) {
			_, _, err := c.Limits.Put(t.Context(), c.Tenant, "one", limits.Settings{MaxRunning: new(1)})
			c.Must(err)
			c.Create("a", Never, to.at("/broken"), limited)
			first := c.Trigger("a")
			c.Until("the first run to fail", `SELECT status = 'retrying' FROM punctual.runs WHERE id = $1`, first.ID)
			job := c.Create("b", Never, to.at("/"), limited).ID
			c.Trigger("b")
			c.Until("the second run to wait", parked, job, 1)
			c.DeleteJob("a")
			ended(c, job, 1)
		},
		"a chain": func(c Fixture, to slow) {
			job := c.Create("b", Never, to.at("/")).ID
			c.Create("a", Never, to.at("/"), Then("b"))
			c.Trigger("a")
			ended(c, job, 1)
		},
		"steps": func(c Fixture, to slow) {
			job := c.Create("a", Never, Steps("x", "y<x", "z<y"), to.at("/")).ID
			c.Trigger("a")
			ended(c, job, 4)
		},
		"the steps of a workflow that is cancelled": func(c Fixture, to slow) {
			_, _, err := c.Limits.Put(t.Context(), c.Tenant, "one", limits.Settings{MaxRunning: new(1)})
			c.Must(err)
			c.Create("a", Never, Steps("x"), to.at("/broken"), func(d *jobspec.Definition) {
				d.Steps[0].Limits, d.Steps[0].Retry.MaxAttempts = []string{"one"}, 2
			})
			whole := c.Trigger("a")
			c.Until("its step to fail", `SELECT count(*) = 1 FROM punctual.runs WHERE status = 'retrying'`)
			job := c.Create("b", Never, to.at("/"), limited).ID
			c.Trigger("b")
			c.Until("the other run to wait", parked, job, 1)
			c.Cancel(whole.ID)
			ended(c, job, 1)
		},
		"an approval": func(c Fixture, to slow) {
			job := c.Create("a", Never, Steps("x", "y<x"), approvals(jobspec.Approval{}, "x"), to.at("/")).ID
			c.Trigger("a")
			var step uuid.UUID
			c.Until("the step to wait", `SELECT count(*) = 1 FROM punctual.ready WHERE waits = 'person'`)
			step = Value[uuid.UUID](c, `SELECT run_id FROM punctual.ready WHERE waits = 'person'`)
			_, err := c.Runs.Decide(t.Context(), c.Tenant, step, true, "")
			c.Must(err)
			ended(c, job, 3)
		},
		"an event": func(c Fixture, to slow) {
			job := c.Create("a", On("paid", ""), to.at("/")).ID
			c.Emit("paid", `{}`)
			ended(c, job, 1)
		},
		"a dated run": func(c Fixture, to slow) {
			job := c.Create("a", Never, to.at("/")).ID
			c.Date("a", jobs.DateRequest{At: new(c.Clock())})
			ended(c, job, 1)
		},
		"a dated run of a job that is resumed": func(c Fixture, to slow) {
			job := c.Create("a", Never, to.at("/")).ID
			c.Pause("a")
			c.Date("a", jobs.DateRequest{At: new(c.Clock())})
			c.Until("it to be set aside", `SELECT count(*) = 1 FROM punctual.dated WHERE waits = 'aside'`)
			c.Resumed("a")
			ended(c, job, 1)
		},
		"a dated run of a job whose pause ends": func(c Fixture, to slow) {
			job := c.Create("a", Never, to.at("/")).ID
			until := c.Clock().Add(time.Second)
			c.PauseWith("a", "", &until)
			c.Date("a", jobs.DateRequest{At: new(c.Clock())})
			ended(c, job, 1)
		},
		"a backfill": func(c Fixture, to slow) {
			job := c.Create("a", HalfPast, to.at("/")).ID
			c.Exec(`UPDATE punctual.job_versions SET valid_from = valid_from - interval '1 day'`)
			now := c.Clock()
			c.Backfill(letters.BackfillRequest{Job: "a", From: now.Add(-4 * time.Hour), To: now})
			ended(c, job, 4)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := NewFixtureOn(t, pgtest.DSN(t))
			c.ReplicateOn(sleep(t, c.Replicas), "default", 10)
			hop(c, slowly(t))
		})
	}
}
