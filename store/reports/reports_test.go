package reports_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/claim"
	"punctual/store/pg"
	"punctual/store/reports"
)

// reporter is a replica whose tenant's targets share the database, and end runs in transactions of their own. What they
// do is a row in effects.
type reporter struct{ Replica }

func newReporter(t *testing.T) reporter { return asReporter(NewReplica(t)) }

func asReporter(c Replica) reporter {
	c.T.Helper()
	c.Exec(`CREATE TABLE public.effects (run uuid, fence bigint)`)
	c.Exec(`UPDATE punctual.tenants SET reports_since = now() - interval '1 min' WHERE id = $1`, c.Tenant)
	c.Renewed()
	return reporter{c}
}

// work does the work of an attempt and reports that it is done, in a transaction that the caller ends.
func (c reporter) work(a domain.Assignment) (tx pgx.Tx, err error) {
	c.T.Helper()
	tx = c.Transaction()
	c.T.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(c.T.Context())) })
	return tx, c.workIn(tx, a)
}

func (c reporter) workIn(tx pgx.Tx, a domain.Assignment) error {
	ctx := Bounded(c.T)
	if _, err := tx.Exec(ctx, `INSERT INTO public.effects VALUES ($1, $2)`, a.RunID, a.Fence); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `SELECT punctual.complete_for($1, $2, $3, '{"rows": 7}')`, c.Tenant, a.RunID, a.Fence)
	return err
}

// done is work that commits.
func (c reporter) done(a domain.Assignment) {
	c.T.Helper()
	tx, err := c.work(a)
	Must(c.T, errors.Join(err, tx.Commit(c.T.Context())))
}

// fails reports that an attempt failed.
func (c reporter) fails(a domain.Assignment) {
	c.T.Helper()
	c.Exec(`SELECT punctual.fail_for($1, $2, $3, 'the ledger is locked')`, c.Tenant, a.RunID, a.Fence)
}

func (c reporter) applyReports() {
	c.T.Helper()
	_, err := c.Reports.Apply(c.T.Context())
	Must(c.T, err)
}

// refused checks that a report was refused and says what to do.
func refused(t *testing.T, err error) {
	t.Helper()
	if refusal, is := errors.AsType[*pgconn.PgError](err); !is || refusal.Code != "PU409" || refusal.Hint == "" {
		t.Errorf("error %v, want PU409 with a hint", err)
	}
}

// wantEffect checks that the work of a run was done once if the run succeeded, and else never.
func (c reporter) wantEffect(a domain.Assignment, want string) {
	c.T.Helper()
	c.WantState(a.RunID, want)
	once := 0
	if strings.HasPrefix(want, "succeeded") {
		once = 1
	}
	c.WantCount(once, "the work was done", `SELECT count(*) FROM public.effects WHERE run = $1`, a.RunID)
	c.WantCount(0, "reports are not applied", `SELECT count(*) FROM punctual.reports WHERE applied_at IS NULL`)
}

// Whatever an answer says, and whoever ends the attempt: if its target has committed the work, the run has succeeded,
// and else the attempt ends as it would have anyway. While the target's transaction is open, nothing is decided.
func TestARunSucceedsIfAndOnlyIfTheWorkCommits(t *testing.T) {
	t.Parallel()
	answers := func(end Ending) func(reporter, domain.Assignment) {
		return func(c reporter, a domain.Assignment) { c.FinishWhatItCan(end(a)) }
	}
	lost := func(c reporter, a domain.Assignment) {
		c.Lose(c.ReplicaID)
		c.Recover()
	}
	for name, tt := range map[string]struct {
		option Option
		end    func(reporter, domain.Assignment)
		commit string // what the run is then
		other  string
	}{
		"answers 200": {Forbid, answers(Succeeded), "succeeded 200 attempt 1 finished", ""},
		"answers 503": {
			Forbid, answers(Failed), "succeeded 503 attempt 1 finished",
			"retrying http_5xx 503 attempt 1 next in 60 ready in 60 attempts: 1 failed http_5xx",
		},
		"answers 503 to the last attempt": {
			Forbid, answers(Buried), "succeeded 503 attempt 1 finished",
			"dead http_5xx 503 attempt 1 finished dead letter of 1 http_5xx attempts: 1 failed http_5xx",
		},
		"is interrupted": {
			Forbid, answers(Interrupted), "succeeded attempt 1 finished",
			"retrying attempt 0 next in 0 ready in 0 attempts: 1 interrupted",
		},
		"does not answer its lost replica": {
			Forbid, lost, "succeeded attempt 1 finished",
			"retrying lost attempt 1 next in 0 ready in 0 attempts: 1 lost lost",
		},
		"is silent": {
			ByCallback, func(c reporter, a domain.Assignment) {
				c.Accept(a)
				c.Overdue(a.RunID)
			}, "succeeded 202 attempt 1 finished",
			"retrying silent attempt 1 next in 0 ready in 0 attempts: 1 lost silent",
		},
		"is silent and told by a chore": {
			ByCallback, func(c reporter, a domain.Assignment) {
				if c.Count(`SELECT count(*) FROM punctual.ready`) == 0 {
					c.Accept(a)
				}
				c.applyReports()
			}, "succeeded 202 attempt 1 finished", "",
		},
		"has not answered yet": {
			Forbid, func(c reporter, a domain.Assignment) { c.applyReports() }, "succeeded attempt 1 finished", "",
		},
	} {
		for _, commits := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, commits: %t", name, commits), func(t *testing.T) {
				if !commits && tt.other == "" {
					return
				}
				c := newReporter(t)
				a := c.Manual("a", tt.option)
				tx, err := c.work(a)
				Must(t, err)
				tt.end(c, a)
				c.WantCount(1, "the attempt is under way", `SELECT count(*) FROM punctual.runs WHERE status = 'running'`)
				want := tt.commit
				if commits {
					Must(t, tx.Commit(t.Context()))
				} else {
					Must(t, tx.Rollback(t.Context()))
					want = tt.other
				}
				c.Exec(`UPDATE punctual.ready SET due_at = now() - interval '1 s'`)
				tt.end(c, a)
				c.wantEffect(a, want)
				if commits {
					late, err := c.Claims.Finish(t.Context(), []domain.Outcome{Failed(a)}, []uuid.UUID{a.Lease.ID})
					if late != 0 || err != nil {
						t.Errorf("an answer after the report: superseded %d, error %v", late, err)
					}
					c.applyReports()
					c.wantEffect(a, want)
					c.NothingLeft()
					if got := c.Run(a.RunID).Result; string(got) != `{"rows": 7}` {
						t.Errorf("result %s", got)
					}
				}
			})
		}
	}
}

// A target whose replica was killed may have done the work after the run was taken over, or in time. Postgres keeps
// what Go does not read. The functions of a grant refuse it now; what is there all the same, is judged by itself.
func TestAResultThatCannotBeReadHoldsUpNoOtherRun(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(c reporter, runs []domain.Assignment){
		"their replica ends them": func(c reporter, runs []domain.Assignment) {
			for _, a := range runs {
				c.Finish(Succeeded(a))
			}
		},
		"their replica ends them together": func(c reporter, runs []domain.Assignment) { c.Finish(Succeeded(runs[0]), Succeeded(runs[1])) },
		"their replica is lost": func(c reporter, _ []domain.Assignment) {
			c.Lose(c.ReplicaID)
			c.Recover()
		},
		"by a chore": func(c reporter, _ []domain.Assignment) { c.applyReports() },
	} {
		t.Run(name, func(t *testing.T) {
			c := newReporter(t)
			c.Create("poison", Never)
			c.Create("other", Never)
			poison, other := c.Begun("poison"), c.Begun("other")
			c.done(poison)
			c.done(other)
			c.Exec(`UPDATE punctual.reports SET result = (repeat('[', 12000) || repeat(']', 12000))::json WHERE run_id = $1`,
				poison.RunID)
			end(c, []domain.Assignment{poison, other})
			for _, a := range []domain.Assignment{poison, other} {
				if run := c.Run(a.RunID); run.Status != domain.StatusSucceeded {
					t.Errorf("the run of %s is %s", run.Job, run.Status)
				}
			}
			if run := c.Run(poison.RunID); run.Result != nil || !strings.Contains(pg.OrZero(run.ResultNote), "64 levels") {
				t.Errorf("result %.20s, note %q", run.Result, pg.OrZero(run.ResultNote))
			}
		})
	}
}

func TestOfTwoReportsOneIsRefused(t *testing.T) {
	t.Parallel()
	t.Run("a second call waits for the first, and is refused once that has committed", func(t *testing.T) {
		c := newReporter(t)
		a := c.Manual("a", Forbid)
		first, err := c.work(a)
		Must(t, err)
		second := c.Transaction()
		waited := make(chan error)
		go func() { waited <- c.workIn(second, a) }()
		c.Until("the second call waits", `SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted`)
		Must(t, first.Commit(t.Context()))
		refused(t, <-waited)
		Must(t, second.Rollback(t.Context()))
		c.applyReports()
		c.wantEffect(a, "succeeded attempt 1 finished")
	})
	t.Run("a second call goes on once the first has rolled back", func(t *testing.T) {
		c := newReporter(t)
		a := c.Manual("a", Forbid)
		first, err := c.work(a)
		Must(t, err)
		Must(t, first.Rollback(t.Context()))
		c.done(a)
		c.FinishAndRelease(Failed(a))
		c.wantEffect(a, "succeeded 503 attempt 1 finished")
		c.NothingLeft()
	})
	t.Run("a superseded attempt is refused, and the next one is not", func(t *testing.T) {
		c := newReporter(t)
		a := c.Manual("a", Forbid)
		c.Lose(c.ReplicaID)
		c.Recover()
		_, err := c.work(a)
		refused(t, err)
		again := c.Again()
		_, err = c.work(a)
		refused(t, err)
		c.done(again)
		c.FinishAndRelease(Succeeded(again))
		c.wantEffect(a, "succeeded 200 attempt 2 finished attempts: 1 lost lost")
		_, err = c.work(again)
		refused(t, err)
	})
	// Such a transaction reads an attempt that has ended as under way.
	for name, end := range map[string]Ending{"failed": Failed, "buried": Buried, "succeeded": Succeeded} {
		t.Run("a transaction with an old snapshot is refused by the row: "+name, func(t *testing.T) {
			c := newReporter(t)
			a := c.Manual("a", Forbid)
			tx, err := c.Connect().BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
			Must(t, err)
			_, err = tx.Exec(t.Context(), `SELECT count(*) FROM punctual.runs`)
			Must(t, err)
			c.FinishAndRelease(end(a))
			if err := c.workIn(tx, a); pg.Code(err) != "40001" {
				t.Errorf("error %v, want a serialization failure", err)
			}
			Must(t, tx.Rollback(t.Context()))
		})
	}
	// An attempt that a replica ended that did not know that the tenant reports.
	t.Run("the report of an earlier attempt keeps the next one from doing the work again", func(t *testing.T) {
		c := newReporter(t)
		a := c.Manual("a", Forbid)
		tx, err := c.work(a)
		Must(t, err)
		c.Exec(`UPDATE punctual.tenants SET reports_since = NULL`)
		c.Renewed()
		c.FinishAndRelease(Failed(a))
		c.Exec(`UPDATE punctual.tenants SET reports_since = now() - interval '1 min'`)
		c.Renewed()
		again := c.Again()
		Must(t, tx.Commit(t.Context()))
		_, err = c.work(again)
		refused(t, err)
		c.FinishAndRelease(Failed(again))
		c.wantEffect(a, "succeeded 503 attempt 2 finished attempts: 1 failed http_5xx")
	})
}

func TestAReportIsOfARunOfTheTenant(t *testing.T) {
	c := newReporter(t)
	a := c.Manual("a")
	report := func(tenant int32, run *uuid.UUID, fence int64, result string) string {
		_, err := c.DB.Callers.Exec(t.Context(), `SELECT punctual.complete_for($1, $2, $3, $4::json)`,
			tenant, run, fence, result)
		return pg.Code(err)
	}
	unknown := uuid.New()
	for want, got := range map[string]string{
		"PU404":            report(c.Tenant, &unknown, a.Fence, `null`),
		"PU404 of another": report(c.Tenant+1, &a.RunID, a.Fence, `null`) + " of another",
		"PU409":            report(c.Tenant, &a.RunID, a.Fence-1, `null`),
		"PU422":            report(c.Tenant, nil, a.Fence, `null`),
		"PU422 of size":    report(c.Tenant, &a.RunID, a.Fence, `"`+strings.Repeat("x", domain.MaxResult)+`"`) + " of size",
	} {
		if got != want {
			t.Errorf("refused with %s, want %s", got, want)
		}
	}
	c.Exec(`UPDATE punctual.tenants SET reports_since = now()`)
	if got := report(c.Tenant, &a.RunID, a.Fence, `null`); got != "PU409" {
		t.Errorf("a run that was claimed before its replica knew: %s", got)
	}
}

func TestAReportedFailureIsRetriedAsOthersAre(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(reporter, domain.Assignment){
		"told by the answer": func(c reporter, a domain.Assignment) { c.FinishAndRelease(Succeeded(a)) },
		"told by a chore":    func(c reporter, _ domain.Assignment) { c.applyReports() },
	} {
		t.Run(name, func(t *testing.T) {
			c := newReporter(t)
			a := c.Manual("a", Forbid, func(d *jobspec.Definition) { d.Retry.MaxAttempts = 2 })
			c.fails(a)
			_, err := c.work(a)
			refused(t, err)
			end(c, a)
			if s := c.State(a.RunID); !strings.HasPrefix(s, "retrying failed") ||
				!strings.HasSuffix(s, "attempts: 1 failed failed") {
				t.Error(s)
			}
			again := c.Again()
			c.fails(again)
			end(c, again)
			if run := c.Run(a.RunID); run.Status != domain.StatusDead || *run.Error != "the ledger is locked" {
				t.Errorf("run %+v", run)
			}
			c.Exec(`DELETE FROM punctual.claims`)
			c.NothingLeft()
		})
	}
}

func TestACancelAndAReportExcludeEachOther(t *testing.T) {
	t.Parallel()
	t.Run("a cancel that comes first", func(t *testing.T) {
		c := newReporter(t)
		a := c.Manual("a", Forbid)
		c.Cancel(a.RunID)
		_, err := c.work(a)
		refused(t, err)
		c.FinishAndRelease(Cancelled(a))
		c.wantEffect(a, "cancelled cancelled_by_user attempt 1 finished attempts: 1 cancelled cancelled_by_user")
	})
	t.Run("a report that comes first", func(t *testing.T) {
		c := newReporter(t)
		a := c.Manual("a", Forbid)
		tx, err := c.work(a)
		Must(t, err)
		c.Cancel(a.RunID)
		if runs, leases := c.FinishWhatItCan(Cancelled(a)); len(runs) != 1 || len(leases) != 1 {
			t.Errorf("%d runs and %d leases wait for the transaction", len(runs), len(leases))
		}
		Must(t, tx.Commit(t.Context()))
		c.FinishAndRelease(Cancelled(a))
		c.wantEffect(a, "succeeded attempt 1 finished")
		c.NothingLeft()
	})
	t.Run("a run that no replica has", func(t *testing.T) {
		c := newReporter(t)
		a := c.Manual("a", Forbid)
		c.done(a)
		c.Exec(`DELETE FROM punctual.claims`)
		c.Cancel(a.RunID)
		if n, _, err := c.Claims.Sweep(t.Context()); n != 1 || err != nil {
			t.Fatalf("the sweep took %d runs back, %v", n, err)
		}
		c.wantEffect(a, "succeeded attempt 1 finished")
	})
}

// A target that reports in both ways is answered alike, whichever comes first.
func TestACallAfterAReport(t *testing.T) {
	c := newReporter(t)
	a := c.Accepted("a")
	tx, err := c.work(a)
	Must(t, err)
	_, err = c.Runs.CompleteRun(t.Context(), a.RunID, a.RunToken, nil)
	if _, is := errors.AsType[*pg.LockedError](err); !is {
		t.Errorf("while the transaction is open: %v", err)
	}
	Must(t, tx.Commit(t.Context()))
	_, err = c.Runs.FailRun(t.Context(), a.RunID, a.RunToken, "no", true)
	if _, is := errors.AsType[*claim.SupersededError](err); !is {
		t.Errorf("error %v, want a SupersededError", err)
	}
	c.wantEffect(a, "succeeded 202 attempt 1 finished")
	_, err = c.Runs.CompleteRun(t.Context(), a.RunID, a.RunToken, json.RawMessage(`1`))
	Must(t, err)
	c.NothingLeft()
	b := c.Accepted("b")
	_, err = c.Runs.CompleteRun(t.Context(), b.RunID, b.RunToken, nil)
	Must(t, err)
	_, err = c.work(b)
	refused(t, err)
}

// An open transaction of one target holds up the outcome of its run and no other.
func TestAnOpenReportHoldsUpNoOtherRun(t *testing.T) {
	c := newReporter(t)
	first, second := c.Manual("first", Forbid), c.Manual("second")
	tx, err := c.work(first)
	Must(t, err)
	runs, leases := c.FinishWhatItCan(Failed(first), Succeeded(second))
	if len(runs) != 1 || runs[0] != first.RunID || len(leases) == 0 {
		t.Errorf("left: runs %v, leases %v", runs, leases)
	}
	c.WantState(second.RunID, "succeeded 200 attempt 1 finished")
	c.Lose(c.ReplicaID)
	if n := c.Recover(); n != 0 {
		t.Errorf("%d runs were taken over", n)
	}
	Must(t, tx.Rollback(t.Context()))
	if n := c.Recover(); n != 1 {
		t.Errorf("%d runs were taken over after that", n)
	}
	c.WantState(first.RunID, "retrying lost attempt 1 next in 0 ready in 0 attempts: 1 lost lost")
	c.WantCount(0, "claims are left", `SELECT count(*) FROM punctual.claims`)
}

// A tenant whose targets do not report pays nothing: no statement that ends its attempts names the table.
func TestNoFinishLooksForReportsUnlessItsTenantReports(t *testing.T) {
	c := NewReplica(t)
	c.Renewed()
	c.Exec(`ALTER TABLE punctual.reports RENAME TO hidden`)
	for i, end := range []Ending{Succeeded, Failed, Buried, Cancelled} {
		c.FinishAndRelease(end(c.Manual(fmt.Sprint("job", i))))
	}
	c.Manual("lost")
	c.Lose(c.ReplicaID)
	if n := c.Recover(); n != 1 {
		t.Errorf("%d runs were recovered", n)
	}
	c = AsReplica(c.Fixture)
	c.Exec(`DELETE FROM punctual.ready`)
	silent := c.Manual("silent", ByCallback)
	c.Accept(silent)
	if !c.Overdue(silent.RunID) {
		t.Error("the attempt of a silent target goes on")
	}
	c.Exec(`ALTER TABLE punctual.hidden RENAME TO reports`)
	c.Exec(`DELETE FROM punctual.ready`)
	c.Exec(`UPDATE punctual.tenants SET reports_since = now()`)
	c.Renewed()
	c.FinishAndRelease(Succeeded(c.Manual("reports")))
	c.WantCount(1, "attempts have ended for good", `SELECT count(*) FROM punctual.reports`)
}

func TestExplainAndVerifyKnowOfReports(t *testing.T) {
	c := newReporter(t)
	_, slot := c.DueNow("a")
	a := c.One(c.Claim(1, false))
	c.done(a)
	c.Exec(`UPDATE punctual.reports SET reported_at = now() - interval '2 min'`)
	reports := func() (found []string) {
		lines, _ := c.Verified()
		return slices.DeleteFunc(lines, func(line string) bool { return !strings.HasPrefix(line, "report ") })
	}
	if got := reports(); !slices.Equal(got, []string{"report a"}) {
		t.Errorf("before it is applied, verify reports %q", got)
	}
	if !c.Wants("reports") {
		t.Error("no heartbeat asks for it to be applied")
	}
	look := func() []string {
		c.Asked()
		_, err := c.Claims.NextDue(t.Context(), scheduler.LookInto{}, false)
		Must(t, err)
		return c.Asked()
	}
	if got := look(); slices.Contains(got, "reports") {
		t.Error("an old report, which the heartbeats ask for, is asked for by each look")
	}
	c.Exec(`UPDATE punctual.reports SET reported_at = now()`)
	if got := look(); !slices.Contains(got, "reports") {
		t.Errorf("a look asks for %v, and not for a report that was just made", got)
	}
	c.FinishAndRelease(Failed(a))
	if got := reports(); len(got) > 0 || c.Wants("reports") {
		t.Errorf("afterwards verify reports %q", got)
	}
	if e := c.Explained("a", slot); !strings.HasSuffix(e.Text, "It was completed by its target in its own transaction.") {
		t.Error(e.Text)
	}
	c.Exec(`UPDATE punctual.reports SET reported_at = now() - interval '1 year'`)
	if n, _, err := c.ForgetOld(t.Context(), "reports"); n != 1 || err != nil {
		t.Errorf("forgot %d reports, error %v", n, err)
	}
}

// A transaction about the jobs of one tenant sees no other: what it reads of who reports holds for it alone.
func TestATransactionOfOneTenantTeachesNothingOfOthers(t *testing.T) {
	c := newReporter(t)
	a, other, f := c.Manual("a"), c.NewTenant("other"), new(reports.Follower)
	Must(t, c.DB.Callers.InTx(t.Context(), other.ID, func(tx *pg.Tx) error {
		_, err := f.Follow(t.Context(), tx, other.ID)
		return err
	}))
	following, err := f.Follow(t.Context(), c.DB.Runs, pg.Everybody)
	Must(t, err)
	var b pgx.Batch
	if following.QueueRead(&b, []domain.Outcome{Succeeded(a)}); b.Len() == 0 {
		t.Error("an outcome of the tenant that reports is written without a look at reports")
	}
}
