package store

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	"punctual/internal/privatepg"
	"punctual/scheduler/credential"
	"punctual/scheduler/domain"
)

// two claims two runs together: the first of a job that must not overlap.
func (c claimer) two() (first, second domain.Assignment) {
	c.t.Helper()
	c.create("first", never, forbid)
	c.create("second", never)
	c.trigger("first")
	c.trigger("second")
	runs := c.claimReady(10).Runs
	if len(runs) != 2 || runs[0].Lease != runs[1].Lease {
		c.t.Fatalf("claimed %d runs, want 2 together", len(runs))
	}
	if runs[0].Job.Name == "second" {
		return runs[1], runs[0]
	}
	return runs[0], runs[1]
}

// loseOutcome puts a run back as an asynchronous failover does that has lost its outcome. Its lease was claimed from
// the Postgres before.
func (c crud) loseOutcome(a domain.Assignment) {
	c.t.Helper()
	a.Lease.Started = nil
	c.exec(`
		UPDATE punctual.runs
		SET status = 'running', reason = NULL, finished_at = NULL, next_attempt_at = NULL, attempt = $2
		WHERE id = $1`, a.RunID, a.Attempt)
	c.exec(`DELETE FROM punctual.ready WHERE run_id = $1`, a.RunID)
	c.exec(`DELETE FROM punctual.attempts WHERE run_id = $1 AND fence = $2`, a.RunID, a.Fence)
	c.exec(`UPDATE punctual.exclusive SET active_run = $1 WHERE job_id = $2`, a.RunID, a.Job.ID)
}

// isLost checks that the attempt of a run is on record as lost, and that the next attempt succeeds and leaves nothing.
func (c claimer) isLost(a domain.Assignment) {
	c.t.Helper()
	again := c.again()
	if again.RunID != a.RunID || again.Attempt != a.Attempt+1 {
		c.t.Fatalf("claimed again: attempt %d of run %s, want %d of %s", again.Attempt, again.RunID, a.Attempt+1, a.RunID)
	}
	c.finishAndRelease(succeeded(again))
	if run := c.run(a.RunID); len(run.Attempts) != 2 || run.Attempts[0].Outcome != domain.AttemptLost {
		c.t.Errorf("attempts %+v", run.Attempts)
	}
	c.nothingLeft()
}

func TestALeaseEndsOnlyWhenTheDatabaseSaysThatItsRunsHaveEnded(t *testing.T) {
	t.Parallel()
	release := func(c claimer, last domain.Outcome, earlier ...uuid.UUID) {
		c.t.Helper()
		if _, err := c.Claims.Finish(
			c.t.Context(), []domain.Outcome{last}, []uuid.UUID{last.Lease.ID}, earlier...,
		); err != nil {
			c.t.Fatal(err)
		}
	}
	t.Run("an outcome was lost", func(t *testing.T) {
		c := newClaimer(t)
		first, second := c.two()
		c.finish(succeeded(first))
		c.loseOutcome(first)
		release(c, succeeded(second), first.RunID)
		if claims := c.renewed().Claims; !slices.Equal(claims, []uuid.UUID{first.Lease.ID}) {
			t.Fatalf("the replica has the claims %v, want the one whose run is still running", claims)
		}
		if n, err := c.Claims.Lose(t.Context(), []uuid.UUID{first.Lease.ID}, nil); n != 1 || err != nil {
			t.Fatalf("%d attempts lost, error %v", n, err)
		}
		c.isLost(first)
	})
	for name, last := range map[string]func(domain.Assignment) domain.Outcome{
		"the last run fails": failed, "the last run is given back": givenBack, "runs are of several days": succeeded,
	} {
		t.Run(name, func(t *testing.T) {
			c := newClaimer(t)
			first, second := c.two()
			c.finish(succeeded(first))
			c.loseOutcome(first)
			release(c, last(second), first.RunID, domain.NewRunID(time.Now().AddDate(0, 0, -1)))
			c.wantCount(1, "claims", `SELECT count(*) FROM punctual.claims`)
		})
	}
	t.Run("while another transaction has locked rows", func(t *testing.T) {
		c := newClaimer(t)
		first, second := c.two()
		c.finish(succeeded(first))
		c.loseOutcome(first)
		free := c.stranger(`runs WHERE id = $1`, second.RunID)
		c.finishWhatItCan(succeeded(second)) // from now on finishes are wary
		free()
		release(c, succeeded(second), first.RunID)
		c.wantCount(1, "claims", `SELECT count(*) FROM punctual.claims`)
	})
	t.Run("nothing was lost", func(t *testing.T) {
		c := newClaimer(t)
		first, second := c.two()
		c.finish(succeeded(first))
		release(c, succeeded(second), first.RunID)
		c.nothingLeft()
	})
	t.Run("the run is running under another lease of the same replica", func(t *testing.T) {
		c := newClaimer(t)
		first, second := c.two()
		c.finish(failed(first))
		again := c.again()
		release(c, succeeded(second), first.RunID)
		if claims := c.renewed().Claims; !slices.Equal(claims, []uuid.UUID{again.Lease.ID}) {
			t.Errorf("the replica has the claims %v, want only the new one", claims)
		}
	})
}

// A lease whose runs were claimed again must not take them from the lease that they are under now.
func TestALeaseThatEndsLateTakesNoRunFromAnother(t *testing.T) {
	c := newClaimer(t)
	first, _ := c.two()
	c.finish(failed(first))
	again := c.again()
	for name, end := range map[string]func() (int, error){
		"lost": func() (int, error) {
			return c.Claims.Lose(t.Context(), []uuid.UUID{first.Lease.ID}, []uuid.UUID{first.RunID})
		},
		"given back": func() (int, error) { return c.Claims.GiveBack(t.Context(), []uuid.UUID{first.Lease.ID}) },
	} {
		if _, err := end(); err != nil {
			t.Fatal(err)
		}
		c.wantCount(1, name+": the run is not sent any more",
			`SELECT count(*) FROM punctual.runs WHERE id = $1 AND fence = $2 AND status = 'running'`, again.RunID, again.Fence)
	}
}

func TestAnOutcomeIsLostWhileOtherRunsOfItsLeaseGoOn(t *testing.T) {
	c := newClaimer(t)
	first, second := c.two()
	c.finish(succeeded(first))
	lose := func() int {
		n, err := c.Claims.Lose(t.Context(), []uuid.UUID{first.Lease.ID}, []uuid.UUID{first.RunID})
		must(t, err)
		return n
	}
	if n := lose(); n != 0 {
		t.Fatalf("%d attempts lost, and all were written", n)
	}
	c.loseOutcome(first)
	if n := lose(); n != 1 {
		t.Fatalf("%d attempts lost, want 1", n)
	}
	if run := c.run(second.RunID); run.Status != domain.StatusRunning {
		t.Errorf("the other run is %s", run.Status)
	}
	c.finishAndRelease(succeeded(second))
	c.isLost(first)
}

// A lost attempt of a job that asks for at most one is the last.
func TestAnOutcomeThatIsLostIsTheLastAttemptOfAtMostOnce(t *testing.T) {
	c := newClaimer(t)
	a := c.manual("once", func(d *domain.Definition) { d.Delivery = domain.DeliverAtMostOnce })
	if _, err := c.Claims.Lose(t.Context(), []uuid.UUID{a.Lease.ID}, nil); err != nil {
		t.Fatal(err)
	}
	if run := c.run(a.RunID); run.Status != domain.StatusDead || orEmpty(run.Reason) != domain.ReasonLost {
		t.Errorf("the run is %s, %s", run.Status, orEmpty(run.Reason))
	}
}

func (c crud) sweep(want int) {
	c.t.Helper()
	n, left, err := c.Claims.Sweep(c.t.Context())
	if n != want || left || err != nil {
		c.t.Fatalf("the sweep took %d runs back, left %t, error %v; want %d", n, left, err, want)
	}
	if _, _, err := c.Claims.Sweep(c.t.Context()); err != nil { // comes to the end: the next one begins anew
		c.t.Fatal(err)
	}
}

func TestASweepTakesBackWhatNobodyHas(t *testing.T) {
	t.Parallel()
	t.Run("a running run without a lease", func(t *testing.T) {
		c := newClaimer(t)
		a := c.manual("a", forbid)
		c.sweep(0)
		c.exec(`DELETE FROM punctual.claims`)
		c.sweep(1)
		c.isLost(a)
	})
	t.Run("a run of weeks ago, behind others", func(t *testing.T) {
		c := newClaimer(t)
		c.exec(`SELECT punctual.create_partitions(d, d) FROM (SELECT (now() AT TIME ZONE 'UTC')::date - 30) x(d)`)
		a := c.manual("a", forbid)
		c.exec(`UPDATE punctual.runs
			SET id = (left(punctual.partition_bound((now() AT TIME ZONE 'UTC')::date - 30)::text, 14)
			          || substr(id::text, 15))::uuid
			WHERE id = $1`, a.RunID)
		c.exec(`DELETE FROM punctual.claims`)
		c.manual("b")
		found := 0
		for range 2 { // one window of days each
			n, _, err := c.Claims.Sweep(t.Context())
			must(t, err)
			found += n
		}
		if found != 1 {
			t.Errorf("%d runs are taken back, want the one of weeks ago", found)
		}
	})
	t.Run("a run that waits, and is not in ready", func(t *testing.T) {
		c := newClaimer(t)
		c.create("a", never)
		run := c.trigger("a")
		c.sweep(0)
		c.exec(`DELETE FROM punctual.ready`)
		c.sweep(1)
		a := c.one(c.claimReady(10))
		if a.RunID != run.ID || a.Attempt != 1 {
			t.Errorf("claimed %+v", a)
		}
		c.finishAndRelease(failed(a))
		c.exec(`DELETE FROM punctual.ready`)
		c.sweep(1)
		if b := c.again(); b.Attempt != 2 {
			t.Errorf("attempt %d", b.Attempt)
		}
	})
	t.Run("a run whose target works on, without a deadline", func(t *testing.T) {
		c := newClaimer(t)
		a := c.accepted("a")
		c.sweep(0)
		c.exec(`DELETE FROM punctual.ready`)
		c.sweep(1)
		if beat, err := c.beat(a, ""); err != nil || beat.Deadline.Before(c.now()) {
			t.Errorf("the target is told %+v, %v", beat, err)
		}
	})
	t.Run("an ordered run, in the lane of ordered runs", func(t *testing.T) {
		c := newClaimer(t)
		c.create("a", never)
		dead := c.die("a", 1)[0]
		replay := c.replay(dead)
		c.exec(`DELETE FROM punctual.ready`)
		c.sweep(1)
		if b := c.claimWaiting(domain.WorkOrdered, 10); len(b.Runs) != 1 || b.Runs[0].RunID != replay.ID {
			t.Errorf("claimed %+v", b.Runs)
		}
	})
	t.Run("and nothing else", func(t *testing.T) {
		c := newClaimer(t)
		first, second := c.two()
		c.finish(failed(first), succeeded(second))
		c.accepted("a")
		c.begun("second")
		c.sweep(0)
	})
}

// A cancel waits for nobody who could carry it out if there is nobody.
func TestACancelEndsARunThatNobodyHas(t *testing.T) {
	t.Parallel()
	t.Run("a running one, even if it was asked before", func(t *testing.T) {
		c := newClaimer(t)
		a := c.manual("a", forbid)
		c.cancel(a.RunID)
		if run := c.run(a.RunID); run.Status != domain.StatusRunning {
			t.Fatalf("a run that a replica has is %s", run.Status)
		}
		c.exec(`DELETE FROM punctual.claims`)
		c.cancel(a.RunID)
		run := c.run(a.RunID)
		if run.Status != domain.StatusCancelled || len(run.Attempts) != 1 || run.Attempts[0].Outcome != domain.AttemptLost {
			t.Errorf("the run is %s, attempts %+v", run.Status, run.Attempts)
		}
		c.cancel(a.RunID)
		c.exec(`DELETE FROM punctual.cancels`)
		c.nothingLeft()
	})
	t.Run("one whose target works on, without a deadline", func(t *testing.T) {
		c := newClaimer(t)
		a := c.accepted("a")
		c.exec(`DELETE FROM punctual.ready`)
		c.cancel(a.RunID)
		if run := c.run(a.RunID); run.Status != domain.StatusCancelled {
			t.Errorf("the run is %s", run.Status)
		}
	})
}

// A failover may lose a change of a secret that a replica has read, and count another change in its place.
func TestASecretThatAnotherPostgresNeverHadIsForgotten(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t, privatepg.Config{})
	c := newCRUDOn(t, pgtest.Database(t, server))
	c.secret("token", "lost")
	read := func() (credential.Secret, error) {
		c.Secrets.ForgetSecrets() // looks whether any has changed
		return c.Secrets.NamedSecret(t.Context(), c.tenant, "token")
	}
	if s, err := read(); err != nil || s.Value != "lost" {
		t.Fatalf("%+v, %v", s, err)
	}
	c.exec(`DELETE FROM punctual.secrets`)
	if s, err := read(); err != nil || s.Value != "lost" {
		t.Fatalf("the secret is not remembered: %+v, %v", s, err)
	}
	must(t, server.Restart(t.Context()))
	for began := time.Now(); ; {
		_, err := read()
		if isAuth(err) {
			return
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("the secret is still known: %v", err)
		}
	}
}
