package claim_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	"punctual/internal/privatepg"
	. "punctual/internal/storetest"
	"punctual/scheduler/credential"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
)

// two claims two runs together: the first of a job that must not overlap.
func two(c Replica) (first, second domain.Assignment) {
	c.T.Helper()
	c.Create("first", Never, Forbid)
	c.Create("second", Never)
	c.Trigger("first")
	c.Trigger("second")
	runs := c.ClaimReady(10).Runs
	if len(runs) != 2 || runs[0].Lease != runs[1].Lease {
		c.T.Fatalf("claimed %d runs, want 2 together", len(runs))
	}
	if runs[0].Job.Name == "second" {
		return runs[1], runs[0]
	}
	return runs[0], runs[1]
}

// loseOutcome puts a run back as an asynchronous failover does that has lost its outcome. Its lease was claimed from
// the Postgres before.
func loseOutcome(c Fixture, a domain.Assignment) {
	c.T.Helper()
	a.Lease.Started = nil
	c.Exec(`
		UPDATE punctual.runs
		SET status = 'running', reason = NULL, finished_at = NULL, next_attempt_at = NULL, attempt = $2
		WHERE id = $1`, a.RunID, a.Attempt)
	c.Exec(`DELETE FROM punctual.ready WHERE run_id = $1`, a.RunID)
	c.Exec(`DELETE FROM punctual.attempts WHERE run_id = $1 AND fence = $2`, a.RunID, a.Fence)
	c.Exec(`UPDATE punctual.exclusive SET active_run = $1 WHERE job_id = $2`, a.RunID, a.Job.ID)
}

// isLost checks that the attempt of a run is on record as lost, and that the next attempt succeeds and leaves nothing.
func isLost(c Replica, a domain.Assignment) {
	c.T.Helper()
	again := c.Again()
	if again.RunID != a.RunID || again.Attempt != a.Attempt+1 {
		c.T.Fatalf("claimed again: attempt %d of run %s, want %d of %s", again.Attempt, again.RunID, a.Attempt+1, a.RunID)
	}
	c.FinishAndRelease(Succeeded(again))
	if run := c.Run(a.RunID); len(run.Attempts) != 2 || run.Attempts[0].Outcome != domain.AttemptLost {
		c.T.Errorf("attempts %+v", run.Attempts)
	}
	c.NothingLeft()
}

func TestALeaseEndsOnlyWhenTheDatabaseSaysThatItsRunsHaveEnded(t *testing.T) {
	t.Parallel()
	release := func(c Replica, last domain.Outcome, earlier ...uuid.UUID) {
		c.T.Helper()
		if _, err := c.Claims.Finish(
			c.T.Context(), []domain.Outcome{last}, []uuid.UUID{last.Lease.ID}, earlier...,
		); err != nil {
			c.T.Fatal(err)
		}
	}
	t.Run("an outcome was lost", func(t *testing.T) {
		c := NewReplica(t)
		first, second := two(c)
		c.Finish(Succeeded(first))
		loseOutcome(c.Fixture, first)
		release(c, Succeeded(second), first.RunID)
		if claims := c.Renewed().Claims; !slices.Equal(claims, []uuid.UUID{first.Lease.ID}) {
			t.Fatalf("the replica has the claims %v, want the one whose run is still running", claims)
		}
		if n, err := c.Claims.Lose(t.Context(), []uuid.UUID{first.Lease.ID}, nil); n != 1 || err != nil {
			t.Fatalf("%d attempts lost, error %v", n, err)
		}
		isLost(c, first)
	})
	for name, last := range map[string]func(domain.Assignment) domain.Outcome{
		"the last run fails": Failed, "the last run is given back": GivenBack, "runs are of several days": Succeeded,
	} {
		t.Run(name, func(t *testing.T) {
			c := NewReplica(t)
			first, second := two(c)
			c.Finish(Succeeded(first))
			loseOutcome(c.Fixture, first)
			release(c, last(second), first.RunID, domain.NewRunID(time.Now().AddDate(0, 0, -1)))
			c.WantCount(1, "claims", `SELECT count(*) FROM punctual.claims`)
		})
	}
	t.Run("while another transaction has locked rows", func(t *testing.T) {
		c := NewReplica(t)
		first, second := two(c)
		c.Finish(Succeeded(first))
		loseOutcome(c.Fixture, first)
		free := c.Stranger(`runs WHERE id = $1`, second.RunID)
		c.FinishWhatItCan(Succeeded(second)) // from now on finishes are wary
		free()
		release(c, Succeeded(second), first.RunID)
		c.WantCount(1, "claims", `SELECT count(*) FROM punctual.claims`)
	})
	t.Run("nothing was lost", func(t *testing.T) {
		c := NewReplica(t)
		first, second := two(c)
		c.Finish(Succeeded(first))
		release(c, Succeeded(second), first.RunID)
		c.NothingLeft()
	})
	t.Run("the run is running under another lease of the same replica", func(t *testing.T) {
		c := NewReplica(t)
		first, second := two(c)
		c.Finish(Failed(first))
		again := c.Again()
		release(c, Succeeded(second), first.RunID)
		if claims := c.Renewed().Claims; !slices.Equal(claims, []uuid.UUID{again.Lease.ID}) {
			t.Errorf("the replica has the claims %v, want only the new one", claims)
		}
	})
}

// A lease whose runs were claimed again must not take them from the lease that they are under now.
func TestALeaseThatEndsLateTakesNoRunFromAnother(t *testing.T) {
	c := NewReplica(t)
	first, _ := two(c)
	c.Finish(Failed(first))
	again := c.Again()
	for name, end := range map[string]func() (int, error){
		"lost": func() (int, error) {
			return c.Claims.Lose(t.Context(), []uuid.UUID{first.Lease.ID}, []uuid.UUID{first.RunID})
		},
		"given back": func() (int, error) { return c.Claims.GiveBack(t.Context(), []uuid.UUID{first.Lease.ID}) },
	} {
		if _, err := end(); err != nil {
			t.Fatal(err)
		}
		c.WantCount(1, name+": the run is not sent any more",
			`SELECT count(*) FROM punctual.runs WHERE id = $1 AND fence = $2 AND status = 'running'`, again.RunID, again.Fence)
	}
}

func TestAnOutcomeIsLostWhileOtherRunsOfItsLeaseGoOn(t *testing.T) {
	c := NewReplica(t)
	first, second := two(c)
	c.Finish(Succeeded(first))
	lose := func() int {
		n, err := c.Claims.Lose(t.Context(), []uuid.UUID{first.Lease.ID}, []uuid.UUID{first.RunID})
		Must(t, err)
		return n
	}
	if n := lose(); n != 0 {
		t.Fatalf("%d attempts lost, and all were written", n)
	}
	loseOutcome(c.Fixture, first)
	if n := lose(); n != 1 {
		t.Fatalf("%d attempts lost, want 1", n)
	}
	if run := c.Run(second.RunID); run.Status != domain.StatusRunning {
		t.Errorf("the other run is %s", run.Status)
	}
	c.FinishAndRelease(Succeeded(second))
	isLost(c, first)
}

// A lost attempt of a job that asks for at most one is the last.
func TestAnOutcomeThatIsLostIsTheLastAttemptOfAtMostOnce(t *testing.T) {
	c := NewReplica(t)
	a := c.Manual("once", func(d *jobspec.Definition) { d.Delivery = jobspec.DeliverAtMostOnce })
	if _, err := c.Claims.Lose(t.Context(), []uuid.UUID{a.Lease.ID}, nil); err != nil {
		t.Fatal(err)
	}
	if run := c.Run(a.RunID); run.Status != domain.StatusDead || OrEmpty(run.Reason) != domain.ReasonLost {
		t.Errorf("the run is %s, %s", run.Status, OrEmpty(run.Reason))
	}
}

func sweep(c Fixture, want int) {
	c.T.Helper()
	n, left, err := c.Claims.Sweep(c.T.Context())
	if n != want || left || err != nil {
		c.T.Fatalf("the sweep took %d runs back, left %t, error %v; want %d", n, left, err, want)
	}
	if _, _, err := c.Claims.Sweep(c.T.Context()); err != nil { // comes to the end: the next one begins anew
		c.T.Fatal(err)
	}
}

// A run is running without a claim, or waits in no list. A sweep takes it back.
//
//prove:database
func TestASweepTakesBackWhatNobodyHas(t *testing.T) {
	t.Parallel()
	t.Run("a running run without a lease", func(t *testing.T) {
		c := NewReplica(t)
		a := c.Manual("a", Forbid)
		sweep(c.Fixture, 0)
		c.Exec(`DELETE FROM punctual.claims`)
		sweep(c.Fixture, 1)
		isLost(c, a)
	})
	t.Run("a run of weeks ago, behind others", func(t *testing.T) {
		c := NewReplica(t)
		c.Exec(`SELECT punctual.create_partitions(d, d) FROM (SELECT (now() AT TIME ZONE 'UTC')::date - 30) x(d)`)
		a := c.Manual("a", Forbid)
		c.Exec(`UPDATE punctual.runs
			SET id = (left(punctual.partition_bound((now() AT TIME ZONE 'UTC')::date - 30)::text, 14)
			          || substr(id::text, 15))::uuid
			WHERE id = $1`, a.RunID)
		c.Exec(`DELETE FROM punctual.claims`)
		c.Manual("b")
		found := 0
		for range 2 { // one window of days each
			n, _, err := c.Claims.Sweep(t.Context())
			Must(t, err)
			found += n
		}
		if found != 1 {
			t.Errorf("%d runs are taken back, want the one of weeks ago", found)
		}
	})
	t.Run("a run that waits, and is not in ready", func(t *testing.T) {
		c := NewReplica(t)
		c.Create("a", Never)
		run := c.Trigger("a")
		sweep(c.Fixture, 0)
		c.Exec(`DELETE FROM punctual.ready`)
		sweep(c.Fixture, 1)
		a := c.One(c.ClaimReady(10))
		if a.RunID != run.ID || a.Attempt != 1 {
			t.Errorf("claimed %+v", a)
		}
		c.FinishAndRelease(Failed(a))
		c.Exec(`DELETE FROM punctual.ready`)
		sweep(c.Fixture, 1)
		if b := c.Again(); b.Attempt != 2 {
			t.Errorf("attempt %d", b.Attempt)
		}
	})
	t.Run("a run whose target works on, without a deadline", func(t *testing.T) {
		c := NewReplica(t)
		a := c.Accepted("a")
		sweep(c.Fixture, 0)
		c.Exec(`DELETE FROM punctual.ready`)
		sweep(c.Fixture, 1)
		if beat, err := c.Beat(a, ""); err != nil || beat.Deadline.Before(c.Clock()) {
			t.Errorf("the target is told %+v, %v", beat, err)
		}
	})
	t.Run("an ordered run, in the lane of ordered runs", func(t *testing.T) {
		c := NewReplica(t)
		c.Create("a", Never)
		dead := c.Die("a", 1)[0]
		replay := c.Replay(dead)
		c.Exec(`DELETE FROM punctual.ready`)
		sweep(c.Fixture, 1)
		if b := c.ClaimWaiting(domain.WorkOrdered, 10); len(b.Runs) != 1 || b.Runs[0].RunID != replay.ID {
			t.Errorf("claimed %+v", b.Runs)
		}
	})
	t.Run("and nothing else", func(t *testing.T) {
		c := NewReplica(t)
		first, second := two(c)
		c.Finish(Failed(first), Succeeded(second))
		c.Accepted("a")
		c.Begun("second")
		sweep(c.Fixture, 0)
	})
}

// A cancel ends such a run at once.
//
// A run that no claim names, or that is in no list.
//
//prove:database
func TestACancelEndsARunThatNobodyHas(t *testing.T) {
	t.Parallel()
	t.Run("a running one, even if it was asked before", func(t *testing.T) {
		c := NewReplica(t)
		a := c.Manual("a", Forbid)
		c.Cancel(a.RunID)
		if run := c.Run(a.RunID); run.Status != domain.StatusRunning {
			t.Fatalf("a run that a replica has is %s", run.Status)
		}
		c.Exec(`DELETE FROM punctual.claims`)
		c.Cancel(a.RunID)
		run := c.Run(a.RunID)
		if run.Status != domain.StatusCancelled || len(run.Attempts) != 1 || run.Attempts[0].Outcome != domain.AttemptLost {
			t.Errorf("the run is %s, attempts %+v", run.Status, run.Attempts)
		}
		c.Cancel(a.RunID)
		c.Exec(`DELETE FROM punctual.cancels`)
		c.NothingLeft()
	})
	t.Run("one whose target works on, without a deadline", func(t *testing.T) {
		c := NewReplica(t)
		a := c.Accepted("a")
		c.Exec(`DELETE FROM punctual.ready`)
		c.Cancel(a.RunID)
		if run := c.Run(a.RunID); run.Status != domain.StatusCancelled {
			t.Errorf("the run is %s", run.Status)
		}
	})
}

// A failover may lose a change of a secret that a replica has read, and count another change in its place.
func TestASecretThatAnotherPostgresNeverHadIsForgotten(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t, privatepg.Config{})
	c := NewFixtureOn(t, pgtest.Database(t, server))
	c.Secret("token", "lost")
	read := func() (credential.Secret, error) {
		c.Secrets.ForgetSecrets() // looks whether any has changed
		return c.Secrets.NamedSecret(t.Context(), c.Tenant, "token")
	}
	if s, err := read(); err != nil || s.Value != "lost" {
		t.Fatalf("%+v, %v", s, err)
	}
	c.Exec(`DELETE FROM punctual.secrets`)
	if s, err := read(); err != nil || s.Value != "lost" {
		t.Fatalf("the secret is not remembered: %+v, %v", s, err)
	}
	Must(t, server.Restart(t.Context()))
	for ctx := Bounded(t); ; {
		_, err := read()
		if IsAuth(err) {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("the secret is still known: %v", err)
		}
	}
}
