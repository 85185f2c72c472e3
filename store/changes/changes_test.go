package changes_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/changes"
	"punctual/store/jobs"
	"punctual/store/pg"
)

// refusesCursor fails the test unless the feed cannot go on from a cursor, for a reason.
func refusesCursor(c Fixture, cursor, why string) {
	c.T.Helper()
	_, err := c.Changes.Read(c.T.Context(), c.Tenant, cursor, 2)
	refusal, is := errors.AsType[*jobspec.Refusal](err)
	if !is || refusal.Code != changes.CodeCursorGone || !strings.Contains(refusal.Reason, why) {
		c.T.Errorf("error %v, want one that says %q", err, why)
	}
}

func TestTheFeedHasEveryWayInWhichARunEnds(t *testing.T) {
	c := NewReplica(t)
	c.KeepChanges(time.Hour)
	c.DueNow("due")
	c.Finish(Succeeded(c.One(c.Claim(10, false)))) // by the table of the day
	dead := c.Manual("others")
	c.Finish(Buried(dead), Cancelled(c.Manual("cut")), Expired(c.Manual("late")))
	c.Replay(dead.RunID)
	c.Cancel(c.ClaimReady(1).Runs[0].RunID) // is cancelled by its replica, and has not ended
	c.Create("waits")
	c.Cancel(c.Trigger("waits").ID)
	old := c.Create("missed", func(d *jobspec.Definition) { d.Missed = jobspec.Missed{Policy: jobspec.MissedSkip} })
	c.SetNext(old.ID, c.Clock().Add(-50*time.Hour).Truncate(time.Hour))
	c.Claim(10, true)
	c.Create("paused", On("e", ""))
	_, err := c.Jobs.PauseJob(t.Context(), c.Tenant, "paused", "", nil)
	Must(t, err)
	c.Emit("e", `1`)
	c.FanOut()
	slow := c.Accepted("slow")
	c.Exec(`UPDATE punctual.ready SET due_at = now() - interval '1 s' WHERE run_id = $1`, slow.RunID)
	c.Listen()
	_, _, err = c.Claims.EndSilent(t.Context())
	Must(t, err)
	c.WantCount(6, "ways", `SELECT count(DISTINCT status || trigger) FROM punctual.runs WHERE tenant = $1
		AND status IN ('succeeded', 'dead', 'skipped', 'cancelled')`, c.Tenant)
	c.WantRecorded()
}

// A statement-level trigger is on the tables that statements name: a new day must not be without it.
func TestEveryDayIsRecordedAndNoneWithoutAFeed(t *testing.T) {
	c := NewReplica(t)
	unrecorded := `SELECT count(*) FROM (SELECT 'punctual.runs'::regclass UNION
		SELECT inhrelid FROM pg_inherits WHERE inhparent = 'punctual.runs'::regclass
		EXCEPT SELECT * FROM punctual.recorded_tables()) t`
	triggers := `SELECT count(*) FROM punctual.recorded_tables()`
	c.WantCount(0, "recorded tables at first", triggers)
	c.KeepChanges(time.Hour)
	job := c.Create("n").ID
	c.Ran(job, c.Ago(-20), domain.StatusSucceeded)
	c.WantCount(0, "unrecorded tables", unrecorded)
	c.Ran(job, c.Ago(20), domain.StatusDead)
	c.WantRecorded()
	_, feed := c.Changed("")
	c.KeepChanges(0)
	if _, err := c.Changes.Read(t.Context(), c.Tenant, "", 2); !errors.Is(err, pg.ErrState) {
		t.Errorf("without a feed: %v", err)
	}
	_, _, err := c.Changes.Forget(t.Context())
	Must(t, err)
	c.WantCount(0, "recorded tables at last", triggers)
	c.WantCount(0, "changes at last", `SELECT count(*) FROM punctual.changes`)
	c.Ran(job, c.Ago(2), domain.StatusSucceeded)
	c.KeepChanges(time.Hour)
	refusesCursor(c.Fixture, feed, "of another feed")
	if found, _ := c.Changed(""); len(found) != 0 {
		t.Errorf("a new feed begins with %v", found)
	}
}

func TestNoChangeIsSkippedWhenCommitsOvertakeEachOther(t *testing.T) {
	const writers, each = 6, 30
	c := NewFixture(t)
	c.KeepChanges(time.Hour)
	job := c.Create("n").ID
	insert := `INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, finished_at, tenant, job_version, lane,
			status, trigger, fence)
		SELECT u.id, $2, now(), now(), now(), $3, 1, 5, 'succeeded', 'manual', 1 FROM unnest($1::uuid[]) u(id)`
	var all sync.WaitGroup
	var written sync.Map
	for range writers {
		all.Go(func() {
			for range each {
				err := c.DB.Callers.InTx(t.Context(), c.Tenant, func(tx *pg.Tx) error {
					for range 1 + rand.IntN(2) { // a transaction may end runs in several statements
						ids := []uuid.UUID{uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())}
						if err := pg.Exec(t.Context(), tx, insert, ids, job, c.Tenant); err != nil {
							return err
						}
						if err := pg.Exec(t.Context(), tx, `SELECT pg_sleep(0.02 * random() * random())`); err != nil {
							return err
						}
						for _, id := range ids {
							written.Store(id, true)
						}
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	seen, after := map[uuid.UUID]int{}, ""
	for last := false; !last; {
		select {
		case <-done:
			last = true
		default:
		}
		var found []uuid.UUID
		if last {
			found, after = c.Changed(after)
		} else {
			found, after = c.ChangedNow(after)
		}
		for _, id := range found {
			seen[id]++
		}
	}
	n := 0
	written.Range(func(id, _ any) bool {
		if n++; seen[id.(uuid.UUID)] != 1 {
			t.Errorf("run %s was seen %d times", id, seen[id.(uuid.UUID)])
		}
		return true
	})
	if n != len(seen) || n < writers*each {
		t.Errorf("%d runs were written, %d seen", n, len(seen))
	}
}

func TestAnOpenTransactionHoldsUpTheFeedAndLosesNothing(t *testing.T) {
	c := NewFixture(t)
	c.KeepChanges(time.Hour)
	job := c.Create("n").ID
	tx := c.Transaction()
	Must(t, pg.Exec(t.Context(), tx, `SELECT pg_current_xact_id()`))
	run := c.Ran(job, c.Ago(0), domain.StatusSucceeded)
	c.Exec(`UPDATE punctual.changes SET recorded_at = recorded_at - interval '1 min'`)
	page, err := c.Changes.Read(t.Context(), c.Tenant, "", 2)
	Must(t, err)
	if len(page.Runs) > 0 || page.More || page.Lag < time.Minute {
		t.Errorf("while a transaction is open: %+v", page)
	}
	Must(t, tx.Commit(t.Context()))
	if found, _ := c.Changed(page.Next); !slices.Equal(found, []uuid.UUID{run}) {
		t.Errorf("after it: %v", found)
	}
}

func TestACursorThatTheFeedCannotGoOnFromIsRefused(t *testing.T) {
	c := NewFixture(t)
	c.KeepChanges(time.Hour)
	job := c.Create("n").ID
	start, err := c.Changes.Read(t.Context(), c.Tenant, "", 2)
	Must(t, err)
	first := c.Ran(job, c.Ago(0), domain.StatusSucceeded)
	_, one := c.Changed(start.Next)
	c.Ran(job, c.Ago(0).Add(time.Second), domain.StatusSucceeded)
	_, two := c.Changed(one)
	c.Ran(job, c.Ago(0).Add(2*time.Second), domain.StatusSucceeded)

	forget := func(run uuid.UUID) {
		t.Helper()
		c.Exec(`UPDATE punctual.changes SET recorded_at = recorded_at - interval '2 h' WHERE $1 = ANY(runs)`, run)
		n, _, err := c.Changes.Forget(t.Context())
		Must(t, err)
		if n != 1 {
			t.Errorf("%d changes were removed", n)
		}
	}
	forget(first)
	refusesCursor(c, start.Next, "older than the tenant's changes_kept")
	for _, cursor := range []string{one, ""} { // the last row that is gone, and the oldest that is kept
		if found, _ := c.Changed(cursor); len(found) != 2 {
			t.Errorf("from %q on: %v", cursor, found)
		}
	}
	c.Exec(`DELETE FROM punctual.changes WHERE (xid, id) IN (SELECT xid, id FROM punctual.changes ORDER BY xid, id LIMIT 1)`)
	refusesCursor(c, two, "ahead of the database")

	c.Exec(`UPDATE punctual.change_feeds SET system = 'other'`)
	if _, err := c.Changes.Read(t.Context(), c.Tenant, one, 2); !errors.Is(err, pg.ErrState) {
		t.Errorf("in a copy: %v", err)
	}
	_, _, err = c.Changes.Forget(t.Context())
	Must(t, err)
	refusesCursor(c, one, "of another feed")
	if _, err := c.Changes.Read(t.Context(), c.Tenant, "nonsense", 2); !errors.As(err, new(*pg.CursorError)) {
		t.Errorf("a cursor that is none: %v", err)
	}
}

func TestATenantReadsItsOwnChangesOnly(t *testing.T) {
	c := NewReplica(t)
	other := c.Neighbour(1)
	c.KeepChanges(time.Hour)
	other.Create("theirs")
	other.Cancel(other.Trigger("theirs").ID)
	c.WantCount(0, "changes of a tenant without a feed", `SELECT count(*) FROM punctual.changes`)
	other.KeepChanges(time.Hour)
	for _, one := range []Fixture{c.Fixture, other.Fixture} {
		one.Create("mine", func(d *jobspec.Definition) { d.Description = fmt.Sprint(one.Tenant) })
		run, err := one.For(one.Tenant).TriggerJob(t.Context(), "mine", jobs.TriggerRequest{})
		Must(t, err)
		one.Cancel(run.ID)
		if found, _ := one.Changed(""); !slices.Equal(found, []uuid.UUID{run.ID}) {
			t.Errorf("tenant %d reads %v", one.Tenant, found)
		}
	}
}
