package store

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

	"punctual/scheduler/domain"
	"punctual/store/pg"
)

// reporter is a claimer whose tenant's targets share the database, and end runs in transactions of their own. What they
// do is a row in effects.
type reporter struct{ claimer }

func newReporter(t *testing.T) reporter { return asReporter(newClaimer(t)) }

func asReporter(c claimer) reporter {
	c.t.Helper()
	c.exec(`CREATE TABLE public.effects (run uuid, fence bigint)`)
	c.exec(`UPDATE punctual.tenants SET reports_since = now() - interval '1 min' WHERE id = $1`, c.tenant)
	c.renewed()
	return reporter{c}
}

// work does the work of an attempt and reports that it is done, in a transaction that the caller ends.
func (c reporter) work(a domain.Assignment) (tx pgx.Tx, err error) {
	c.t.Helper()
	tx = c.transaction()
	c.t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(c.t.Context())) })
	return tx, c.workIn(tx, a)
}

func (c reporter) workIn(tx pgx.Tx, a domain.Assignment) error {
	ctx := bounded(c.t)
	if _, err := tx.Exec(ctx, `INSERT INTO public.effects VALUES ($1, $2)`, a.RunID, a.Fence); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `SELECT punctual.complete_for($1, $2, $3, '{"rows": 7}')`, c.tenant, a.RunID, a.Fence)
	return err
}

// done is work that commits.
func (c reporter) done(a domain.Assignment) {
	c.t.Helper()
	tx, err := c.work(a)
	must(c.t, errors.Join(err, tx.Commit(c.t.Context())))
}

// fails reports that an attempt failed.
func (c reporter) fails(a domain.Assignment) {
	c.t.Helper()
	c.exec(`SELECT punctual.fail_for($1, $2, $3, 'the ledger is locked')`, c.tenant, a.RunID, a.Fence)
}

func (c reporter) applyReports() {
	c.t.Helper()
	_, err := c.Claims.ApplyReports(c.t.Context())
	must(c.t, err)
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
	c.t.Helper()
	c.wantState(a.RunID, want)
	once := 0
	if strings.HasPrefix(want, "succeeded") {
		once = 1
	}
	c.wantCount(once, "the work was done", `SELECT count(*) FROM public.effects WHERE run = $1`, a.RunID)
	c.wantCount(0, "reports are not applied", `SELECT count(*) FROM punctual.reports WHERE applied_at IS NULL`)
}

// Whatever an answer says, and whoever ends the attempt: if its target has committed the work, the run has succeeded,
// and else the attempt ends as it would have anyway. While the target's transaction is open, nothing is decided.
func TestARunSucceedsIfAndOnlyIfTheWorkCommits(t *testing.T) {
	t.Parallel()
	answers := func(end ending) func(reporter, domain.Assignment) {
		return func(c reporter, a domain.Assignment) { c.finishWhatItCan(end(a)) }
	}
	lost := func(c reporter, a domain.Assignment) {
		c.lose(c.replica)
		c.recover()
	}
	for name, tt := range map[string]struct {
		option option
		end    func(reporter, domain.Assignment)
		commit string // what the run is then
		other  string
	}{
		"answers 200": {forbid, answers(succeeded), "succeeded 200 attempt 1 finished", ""},
		"answers 503": {
			forbid, answers(failed), "succeeded 503 attempt 1 finished",
			"retrying http_5xx 503 attempt 1 next in 60 ready in 60 attempts: 1 failed http_5xx",
		},
		"answers 503 to the last attempt": {
			forbid, answers(buried), "succeeded 503 attempt 1 finished",
			"dead http_5xx 503 attempt 1 finished dead letter of 1 http_5xx attempts: 1 failed http_5xx",
		},
		"is interrupted": {
			forbid, answers(interrupted), "succeeded attempt 1 finished",
			"retrying attempt 0 next in 0 ready in 0 attempts: 1 interrupted",
		},
		"does not answer its lost replica": {
			forbid, lost, "succeeded attempt 1 finished",
			"retrying lost attempt 1 next in 0 ready in 0 attempts: 1 lost lost",
		},
		"is silent": {
			byCallback, func(c reporter, a domain.Assignment) {
				c.accept(a)
				c.overdue(a.RunID)
			}, "succeeded 202 attempt 1 finished",
			"retrying silent attempt 1 next in 0 ready in 0 attempts: 1 lost silent",
		},
		"is silent and told by a chore": {
			byCallback, func(c reporter, a domain.Assignment) {
				if c.count(`SELECT count(*) FROM punctual.ready`) == 0 {
					c.accept(a)
				}
				c.applyReports()
			}, "succeeded 202 attempt 1 finished", "",
		},
		"has not answered yet": {
			forbid, func(c reporter, a domain.Assignment) { c.applyReports() }, "succeeded attempt 1 finished", "",
		},
	} {
		for _, commits := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, commits: %t", name, commits), func(t *testing.T) {
				if !commits && tt.other == "" {
					return
				}
				c := newReporter(t)
				a := c.manual("a", tt.option)
				tx, err := c.work(a)
				must(t, err)
				tt.end(c, a)
				c.wantCount(1, "the attempt is under way", `SELECT count(*) FROM punctual.runs WHERE status = 'running'`)
				want := tt.commit
				if commits {
					must(t, tx.Commit(t.Context()))
				} else {
					must(t, tx.Rollback(t.Context()))
					want = tt.other
				}
				c.exec(`UPDATE punctual.ready SET due_at = now() - interval '1 s'`)
				tt.end(c, a)
				c.wantEffect(a, want)
				if commits {
					late, err := c.Claims.Finish(t.Context(), []domain.Outcome{failed(a)}, []uuid.UUID{a.Lease.ID})
					if late != 0 || err != nil {
						t.Errorf("an answer after the report: superseded %d, error %v", late, err)
					}
					c.applyReports()
					c.wantEffect(a, want)
					c.nothingLeft()
					if got := c.run(a.RunID).Result; string(got) != `{"rows": 7}` {
						t.Errorf("result %s", got)
					}
				}
			})
		}
	}
}

// A target whose replica was killed may have done the work after the run was taken over, or in time.
func TestOfTwoReportsOneIsRefused(t *testing.T) {
	t.Run("a second call waits for the first, and is refused once that has committed", func(t *testing.T) {
		c := newReporter(t)
		a := c.manual("a", forbid)
		first, err := c.work(a)
		must(t, err)
		second := c.transaction()
		waited := make(chan error)
		go func() { waited <- c.workIn(second, a) }()
		c.until("the second call waits", `SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`)
		must(t, first.Commit(t.Context()))
		refused(t, <-waited)
		must(t, second.Rollback(t.Context()))
		c.applyReports()
		c.wantEffect(a, "succeeded attempt 1 finished")
	})
	t.Run("a second call goes on once the first has rolled back", func(t *testing.T) {
		c := newReporter(t)
		a := c.manual("a", forbid)
		first, err := c.work(a)
		must(t, err)
		must(t, first.Rollback(t.Context()))
		c.done(a)
		c.finishAndRelease(failed(a))
		c.wantEffect(a, "succeeded 503 attempt 1 finished")
		c.nothingLeft()
	})
	t.Run("a superseded attempt is refused, and the next one is not", func(t *testing.T) {
		c := newReporter(t)
		a := c.manual("a", forbid)
		c.lose(c.replica)
		c.recover()
		_, err := c.work(a)
		refused(t, err)
		again := c.again()
		_, err = c.work(a)
		refused(t, err)
		c.done(again)
		c.finishAndRelease(succeeded(again))
		c.wantEffect(a, "succeeded 200 attempt 2 finished attempts: 1 lost lost")
		_, err = c.work(again)
		refused(t, err)
	})
	// Such a transaction reads an attempt that has ended as under way.
	for name, end := range map[string]ending{"failed": failed, "buried": buried, "succeeded": succeeded} {
		t.Run("a transaction with an old snapshot is refused by the row: "+name, func(t *testing.T) {
			c := newReporter(t)
			a := c.manual("a", forbid)
			tx, err := c.connect().BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
			must(t, err)
			_, err = tx.Exec(t.Context(), `SELECT count(*) FROM punctual.runs`)
			must(t, err)
			c.finishAndRelease(end(a))
			if err := c.workIn(tx, a); pg.Code(err) != "40001" {
				t.Errorf("error %v, want a serialization failure", err)
			}
			must(t, tx.Rollback(t.Context()))
		})
	}
	// An attempt that a replica ended that did not know that the tenant reports.
	t.Run("the report of an earlier attempt keeps the next one from doing the work again", func(t *testing.T) {
		c := newReporter(t)
		a := c.manual("a", forbid)
		tx, err := c.work(a)
		must(t, err)
		c.exec(`UPDATE punctual.tenants SET reports_since = NULL`)
		c.renewed()
		c.finishAndRelease(failed(a))
		c.exec(`UPDATE punctual.tenants SET reports_since = now() - interval '1 min'`)
		c.renewed()
		again := c.again()
		must(t, tx.Commit(t.Context()))
		_, err = c.work(again)
		refused(t, err)
		c.finishAndRelease(failed(again))
		c.wantEffect(a, "succeeded 503 attempt 2 finished attempts: 1 failed http_5xx")
	})
}

func TestAReportIsOfARunOfTheTenant(t *testing.T) {
	c := newReporter(t)
	a := c.manual("a")
	report := func(tenant int32, run *uuid.UUID, fence int64, result string) string {
		_, err := c.DB.Callers.Exec(t.Context(), `SELECT punctual.complete_for($1, $2, $3, $4::json)`,
			tenant, run, fence, result)
		return pg.Code(err)
	}
	unknown := uuid.New()
	for want, got := range map[string]string{
		"PU404":            report(c.tenant, &unknown, a.Fence, `null`),
		"PU404 of another": report(c.tenant+1, &a.RunID, a.Fence, `null`) + " of another",
		"PU409":            report(c.tenant, &a.RunID, a.Fence-1, `null`),
		"PU422":            report(c.tenant, nil, a.Fence, `null`),
		"PU422 of size":    report(c.tenant, &a.RunID, a.Fence, `"`+strings.Repeat("x", domain.MaxResult)+`"`) + " of size",
	} {
		if got != want {
			t.Errorf("refused with %s, want %s", got, want)
		}
	}
	c.exec(`UPDATE punctual.tenants SET reports_since = now()`)
	if got := report(c.tenant, &a.RunID, a.Fence, `null`); got != "PU409" {
		t.Errorf("a run that was claimed before its replica knew: %s", got)
	}
}

func TestAReportedFailureIsRetriedAsOthersAre(t *testing.T) {
	for name, end := range map[string]func(reporter, domain.Assignment){
		"told by the answer": func(c reporter, a domain.Assignment) { c.finishAndRelease(succeeded(a)) },
		"told by a chore":    func(c reporter, _ domain.Assignment) { c.applyReports() },
	} {
		t.Run(name, func(t *testing.T) {
			c := newReporter(t)
			a := c.manual("a", forbid, func(d *domain.Definition) { d.Retry.MaxAttempts = 2 })
			c.fails(a)
			_, err := c.work(a)
			refused(t, err)
			end(c, a)
			if s := c.state(a.RunID); !strings.HasPrefix(s, "retrying failed") ||
				!strings.HasSuffix(s, "attempts: 1 failed failed") {
				t.Error(s)
			}
			again := c.again()
			c.fails(again)
			end(c, again)
			if run := c.run(a.RunID); run.Status != domain.StatusDead || *run.Error != "the ledger is locked" {
				t.Errorf("run %+v", run)
			}
			c.exec(`DELETE FROM punctual.claims`)
			c.nothingLeft()
		})
	}
}

func TestACancelAndAReportExcludeEachOther(t *testing.T) {
	t.Run("a cancel that comes first", func(t *testing.T) {
		c := newReporter(t)
		a := c.manual("a", forbid)
		c.cancel(a.RunID)
		_, err := c.work(a)
		refused(t, err)
		c.finishAndRelease(cancelled(a))
		c.wantEffect(a, "cancelled cancelled_by_user attempt 1 finished attempts: 1 cancelled cancelled_by_user")
	})
	t.Run("a report that comes first", func(t *testing.T) {
		c := newReporter(t)
		a := c.manual("a", forbid)
		tx, err := c.work(a)
		must(t, err)
		c.cancel(a.RunID)
		if runs, leases := c.finishWhatItCan(cancelled(a)); len(runs) != 1 || len(leases) != 1 {
			t.Errorf("%d runs and %d leases wait for the transaction", len(runs), len(leases))
		}
		must(t, tx.Commit(t.Context()))
		c.finishAndRelease(cancelled(a))
		c.wantEffect(a, "succeeded attempt 1 finished")
		c.nothingLeft()
	})
	t.Run("a run that no replica has", func(t *testing.T) {
		c := newReporter(t)
		a := c.manual("a", forbid)
		c.done(a)
		c.exec(`DELETE FROM punctual.claims`)
		c.cancel(a.RunID)
		c.sweep(1)
		c.wantEffect(a, "succeeded attempt 1 finished")
	})
}

// A target that reports in both ways is answered alike, whichever comes first.
func TestACallAfterAReport(t *testing.T) {
	c := newReporter(t)
	a := c.accepted("a")
	tx, err := c.work(a)
	must(t, err)
	_, err = c.Runs.CompleteRun(t.Context(), a.RunID, a.RunToken, nil)
	if _, is := errors.AsType[*pg.LockedError](err); !is {
		t.Errorf("while the transaction is open: %v", err)
	}
	must(t, tx.Commit(t.Context()))
	_, err = c.Runs.FailRun(t.Context(), a.RunID, a.RunToken, "no", true)
	superseded(t, err)
	c.wantEffect(a, "succeeded 202 attempt 1 finished")
	_, err = c.Runs.CompleteRun(t.Context(), a.RunID, a.RunToken, json.RawMessage(`1`))
	must(t, err)
	c.nothingLeft()
	b := c.accepted("b")
	_, err = c.Runs.CompleteRun(t.Context(), b.RunID, b.RunToken, nil)
	must(t, err)
	_, err = c.work(b)
	refused(t, err)
}

// An open transaction of one target holds up the outcome of its run and no other.
func TestAnOpenReportHoldsUpNoOtherRun(t *testing.T) {
	c := newReporter(t)
	first, second := c.two()
	tx, err := c.work(first)
	must(t, err)
	runs, leases := c.finishWhatItCan(failed(first), succeeded(second))
	if len(runs) != 1 || runs[0] != first.RunID || len(leases) == 0 {
		t.Errorf("left: runs %v, leases %v", runs, leases)
	}
	c.wantState(second.RunID, "succeeded 200 attempt 1 finished")
	c.lose(c.replica)
	if n := c.recover(); n != 0 {
		t.Errorf("%d runs were taken over", n)
	}
	must(t, tx.Rollback(t.Context()))
	if n := c.recover(); n != 1 {
		t.Errorf("%d runs were taken over after that", n)
	}
	c.wantState(first.RunID, "retrying lost attempt 1 next in 0 ready in 0 attempts: 1 lost lost")
	c.wantCount(0, "claims are left", `SELECT count(*) FROM punctual.claims`)
}

// A tenant whose targets do not report pays nothing: no statement that ends its attempts names the table.
func TestNoFinishLooksForReportsUnlessItsTenantReports(t *testing.T) {
	c := newClaimer(t)
	c.renewed()
	c.exec(`ALTER TABLE punctual.reports RENAME TO hidden`)
	for i, end := range []ending{succeeded, failed, buried, cancelled} {
		c.finishAndRelease(end(c.manual(fmt.Sprint("job", i))))
	}
	c.manual("lost")
	c.lose(c.replica)
	if n := c.recover(); n != 1 {
		t.Errorf("%d runs were recovered", n)
	}
	c = asClaimer(c.crud)
	c.exec(`DELETE FROM punctual.ready`)
	silent := c.manual("silent", byCallback)
	c.accept(silent)
	if !c.overdue(silent.RunID) {
		t.Error("the attempt of a silent target goes on")
	}
	c.exec(`ALTER TABLE punctual.hidden RENAME TO reports`)
	c.exec(`DELETE FROM punctual.ready`)
	c.exec(`UPDATE punctual.tenants SET reports_since = now()`)
	c.renewed()
	c.finishAndRelease(succeeded(c.manual("reports")))
	c.wantCount(1, "attempts have ended for good", `SELECT count(*) FROM punctual.reports`)
}

func TestExplainAndVerifyKnowOfReports(t *testing.T) {
	c := newReporter(t)
	_, slot := c.dueNow("a")
	a := c.one(c.claim(1, false))
	c.done(a)
	c.exec(`UPDATE punctual.reports SET reported_at = now() - interval '2 min'`)
	reports := func() (found []string) {
		lines, _ := c.verified()
		return slices.DeleteFunc(lines, func(line string) bool { return !strings.HasPrefix(line, "report ") })
	}
	if got := reports(); !slices.Equal(got, []string{"report a"}) {
		t.Errorf("before it is applied, verify reports %q", got)
	}
	if !c.wants("reports") {
		t.Error("no heartbeat asks for it to be applied")
	}
	c.finishAndRelease(failed(a))
	if got := reports(); len(got) > 0 || c.wants("reports") {
		t.Errorf("afterwards verify reports %q", got)
	}
	if e := c.explained("a", slot); !strings.HasSuffix(e.Text, "It was completed by its target in its own transaction.") {
		t.Error(e.Text)
	}
	c.exec(`UPDATE punctual.reports SET reported_at = now() - interval '1 year'`)
	if n, _, err := c.ForgetReports(t.Context()); n != 1 || err != nil {
		t.Errorf("forgot %d reports, error %v", n, err)
	}
}
