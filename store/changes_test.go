package store

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
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/changes"
	"punctual/store/jobs"
	"punctual/store/pg"
	"punctual/store/tenants"
)

// keepChanges sets how long the changes of the tenant are kept; 0: none are recorded.
func (c crud) keepChanges(kept time.Duration) {
	c.t.Helper()
	_, err := c.Tenants.EditTenant(c.t.Context(), c.tenantName(), func(t *tenants.Tenant) error {
		if t.ChangesKept = nil; kept > 0 {
			t.ChangesKept = new(domain.DurationOf(kept))
		}
		return nil
	})
	must(c.t, err)
}

// changed returns what follows a cursor, and the cursor of what comes next. It waits until no transaction that is older
// is open, also not in other databases of the cluster.
func (c crud) changed(after string) (ended []uuid.UUID, next string) {
	c.t.Helper()
	c.until("older transactions to end", `SELECT coalesce(max(xid) < pg_snapshot_xmin(pg_current_snapshot()), true)
		FROM punctual.changes`)
	return c.changedNow(after)
}

// changedNow is changed for what may be read now, in pages that end within rows of changes.
func (c crud) changedNow(after string) (ended []uuid.UUID, next string) {
	c.t.Helper()
	for more := true; more; {
		page, err := c.Changes.Read(c.t.Context(), c.tenant, after, 7)
		must(c.t, err)
		ended, after, more = append(ended, page.Runs...), page.Next, page.More
	}
	return ended, after
}

// wantRecorded fails the test unless the feed has all runs of the tenant that have ended, and no others.
func (c crud) wantRecorded() {
	c.t.Helper()
	feed, _ := c.changed("")
	want, err := pg.All(c.t.Context(), c.DB.Callers, pgx.RowTo[uuid.UUID], `
		SELECT id FROM punctual.runs WHERE tenant = $1 AND status IN ('succeeded', 'dead', 'skipped', 'cancelled')
		ORDER BY id`, c.tenant)
	must(c.t, err)
	slices.SortFunc(feed, pg.CompareIDs)
	if feed = slices.Compact(feed); !slices.Equal(feed, want) {
		c.t.Errorf("the feed has %v; runs that have ended: %v", feed, want)
	}
}

// refusesCursor fails the test unless the feed cannot go on from a cursor, for a reason.
func (c crud) refusesCursor(cursor, why string) {
	c.t.Helper()
	_, err := c.Changes.Read(c.t.Context(), c.tenant, cursor, 2)
	refusal, is := errors.AsType[*domain.Refusal](err)
	if !is || refusal.Code != changes.CodeCursorGone || !strings.Contains(refusal.Reason, why) {
		c.t.Errorf("error %v, want one that says %q", err, why)
	}
}

func TestTheFeedHasEveryWayInWhichARunEnds(t *testing.T) {
	c := newClaimer(t)
	c.keepChanges(time.Hour)
	c.dueNow("due")
	c.finish(succeeded(c.one(c.claim(10, false)))) // by the table of the day
	dead := c.manual("others")
	c.finish(buried(dead), cancelled(c.manual("cut")), expired(c.manual("late")))
	c.replay(dead.RunID)
	c.cancel(c.claimReady(1).Runs[0].RunID) // is cancelled by its replica, and has not ended
	c.create("waits")
	c.cancel(c.trigger("waits").ID)
	old := c.create("missed", func(d *domain.Definition) { d.Missed = domain.Missed{Policy: domain.MissedSkip} })
	c.setNext(old.ID, c.now().Add(-50*time.Hour).Truncate(time.Hour))
	c.claim(10, true)
	c.create("paused", on("e", ""))
	_, err := c.Jobs.PauseJob(t.Context(), c.tenant, "paused", "", nil)
	must(t, err)
	c.emit("e", `1`)
	c.fanOut()
	slow := c.accepted("slow")
	c.exec(`UPDATE punctual.ready SET due_at = now() - interval '1 s' WHERE run_id = $1`, slow.RunID)
	c.listen()
	_, _, err = c.Claims.EndSilent(t.Context())
	must(t, err)
	c.wantCount(6, "ways", `SELECT count(DISTINCT status || trigger) FROM punctual.runs WHERE tenant = $1
		AND status IN ('succeeded', 'dead', 'skipped', 'cancelled')`, c.tenant)
	c.wantRecorded()
}

// A statement-level trigger is on the tables that statements name: a new day must not be without it.
func TestEveryDayIsRecordedAndNoneWithoutAFeed(t *testing.T) {
	c := newClaimer(t)
	unrecorded := `SELECT count(*) FROM (SELECT 'punctual.runs'::regclass UNION
		SELECT inhrelid FROM pg_inherits WHERE inhparent = 'punctual.runs'::regclass
		EXCEPT SELECT * FROM punctual.recorded_tables()) t`
	triggers := `SELECT count(*) FROM punctual.recorded_tables()`
	c.wantCount(0, "recorded tables at first", triggers)
	c.keepChanges(time.Hour)
	job := c.create("n").ID
	c.ran(job, c.ago(-20), domain.StatusSucceeded)
	c.wantCount(0, "unrecorded tables", unrecorded)
	c.ran(job, c.ago(20), domain.StatusDead)
	c.wantRecorded()
	_, feed := c.changed("")
	c.keepChanges(0)
	if _, err := c.Changes.Read(t.Context(), c.tenant, "", 2); !errors.Is(err, pg.ErrState) {
		t.Errorf("without a feed: %v", err)
	}
	_, _, err := c.Changes.Forget(t.Context())
	must(t, err)
	c.wantCount(0, "recorded tables at last", triggers)
	c.wantCount(0, "changes at last", `SELECT count(*) FROM punctual.changes`)
	c.ran(job, c.ago(2), domain.StatusSucceeded)
	c.keepChanges(time.Hour)
	c.refusesCursor(feed, "of another feed")
	if found, _ := c.changed(""); len(found) != 0 {
		t.Errorf("a new feed begins with %v", found)
	}
}

func TestNoChangeIsSkippedWhenCommitsOvertakeEachOther(t *testing.T) {
	const writers, each = 6, 30
	c := newCRUD(t)
	c.keepChanges(time.Hour)
	job := c.create("n").ID
	insert := `INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, finished_at, tenant, job_version, lane,
			status, trigger, fence)
		SELECT u.id, $2, now(), now(), now(), $3, 1, 5, 'succeeded', 'manual', 1 FROM unnest($1::uuid[]) u(id)`
	var all sync.WaitGroup
	var written sync.Map
	for range writers {
		all.Go(func() {
			for range each {
				err := c.DB.Callers.InTx(t.Context(), c.tenant, func(tx *pg.Tx) error {
					for range 1 + rand.IntN(2) { // a transaction may end runs in several statements
						ids := []uuid.UUID{uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())}
						if err := pg.Exec(t.Context(), tx, insert, ids, job, c.tenant); err != nil {
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
			found, after = c.changed(after)
		} else {
			found, after = c.changedNow(after)
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
	c := newCRUD(t)
	c.keepChanges(time.Hour)
	job := c.create("n").ID
	tx := c.transaction()
	must(t, pg.Exec(t.Context(), tx, `SELECT pg_current_xact_id()`))
	run := c.ran(job, c.ago(0), domain.StatusSucceeded)
	c.exec(`UPDATE punctual.changes SET recorded_at = recorded_at - interval '1 min'`)
	page, err := c.Changes.Read(t.Context(), c.tenant, "", 2)
	must(t, err)
	if len(page.Runs) > 0 || page.More || page.Lag < time.Minute {
		t.Errorf("while a transaction is open: %+v", page)
	}
	must(t, tx.Commit(t.Context()))
	if found, _ := c.changed(page.Next); !slices.Equal(found, []uuid.UUID{run}) {
		t.Errorf("after it: %v", found)
	}
}

func TestACursorThatTheFeedCannotGoOnFromIsRefused(t *testing.T) {
	c := newCRUD(t)
	c.keepChanges(time.Hour)
	job := c.create("n").ID
	start, err := c.Changes.Read(t.Context(), c.tenant, "", 2)
	must(t, err)
	first := c.ran(job, c.ago(0), domain.StatusSucceeded)
	_, one := c.changed(start.Next)
	c.ran(job, c.ago(0).Add(time.Second), domain.StatusSucceeded)
	_, two := c.changed(one)
	c.ran(job, c.ago(0).Add(2*time.Second), domain.StatusSucceeded)

	forget := func(run uuid.UUID) {
		t.Helper()
		c.exec(`UPDATE punctual.changes SET recorded_at = recorded_at - interval '2 h' WHERE $1 = ANY(runs)`, run)
		n, _, err := c.Changes.Forget(t.Context())
		must(t, err)
		if n != 1 {
			t.Errorf("%d changes were removed", n)
		}
	}
	forget(first)
	c.refusesCursor(start.Next, "older than the tenant's changes_kept")
	for _, cursor := range []string{one, ""} { // the last row that is gone, and the oldest that is kept
		if found, _ := c.changed(cursor); len(found) != 2 {
			t.Errorf("from %q on: %v", cursor, found)
		}
	}
	c.exec(`DELETE FROM punctual.changes WHERE (xid, id) IN (SELECT xid, id FROM punctual.changes ORDER BY xid, id LIMIT 1)`)
	c.refusesCursor(two, "ahead of the database")

	c.exec(`UPDATE punctual.change_feeds SET system = 'other'`)
	if _, err := c.Changes.Read(t.Context(), c.tenant, one, 2); !errors.Is(err, pg.ErrState) {
		t.Errorf("in a copy: %v", err)
	}
	_, _, err = c.Changes.Forget(t.Context())
	must(t, err)
	c.refusesCursor(one, "of another feed")
	if _, err := c.Changes.Read(t.Context(), c.tenant, "nonsense", 2); !errors.As(err, new(*pg.CursorError)) {
		t.Errorf("a cursor that is none: %v", err)
	}
}

func TestATenantReadsItsOwnChangesOnly(t *testing.T) {
	c := newClaimer(t)
	other := c.neighbour(1)
	c.keepChanges(time.Hour)
	other.create("theirs")
	other.cancel(other.trigger("theirs").ID)
	c.wantCount(0, "changes of a tenant without a feed", `SELECT count(*) FROM punctual.changes`)
	other.keepChanges(time.Hour)
	for _, one := range []crud{c.crud, other.crud} {
		one.create("mine", func(d *domain.Definition) { d.Description = fmt.Sprint(one.tenant) })
		run, err := one.For(one.tenant).TriggerJob(t.Context(), "mine", jobs.TriggerRequest{})
		must(t, err)
		one.cancel(run.ID)
		if found, _ := one.changed(""); !slices.Equal(found, []uuid.UUID{run.ID}) {
			t.Errorf("tenant %d reads %v", one.tenant, found)
		}
	}
}
