package store

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/letters"
	"punctual/store/pg"
	"punctual/store/runs"
)

// die makes n manual runs of a job that die, and returns their ids, oldest first.
func (c crud) die(job string, n int) []uuid.UUID {
	c.t.Helper()
	var dead []uuid.UUID
	for range n {
		c.trigger(job)
		for _, a := range c.claimAll(uuid.New()) {
			c.finish(a, domain.Bury, domain.ReasonHTTP5xx)
			dead = append(dead, a.RunID)
		}
	}
	if len(dead) != n {
		c.t.Fatalf("%d runs of %s died, want %d", len(dead), job, n)
	}
	return dead
}

func (c crud) replay(dead uuid.UUID) runs.Run {
	c.t.Helper()
	run, err := c.For(c.tenant).ReplayDeadLetter(c.t.Context(), dead, "")
	must(c.t, err)
	return run
}

func (c crud) letters(f letters.DeadLetterFilter) []uuid.UUID {
	c.t.Helper()
	found, _, err := c.Letters.ListDeadLetters(c.t.Context(), c.tenant, f)
	must(c.t, err)
	ids := make([]uuid.UUID, len(found))
	for i, d := range found {
		ids[i] = d.RunID
	}
	slices.SortFunc(ids, pg.CompareIDs)
	return ids
}

var (
	open     = new(false)
	resolved = new(true)
)

func TestReplayMakesANewRunOfADeadOne(t *testing.T) {
	c := newCRUD(t)
	job := c.create("a")
	c.slotAgo(job.ID, 0)
	a := c.claimAll(uuid.New())[0]
	c.finish(a, domain.Bury, domain.ReasonHTTP5xx)
	c.edit("a", func(d *domain.Definition) { d.Target.URL = "https://example.com/fixed" })
	run := c.replay(a.RunID)
	if run.ID == a.RunID || run.ReplayOf == nil || *run.ReplayOf != a.RunID || run.Trigger != domain.TriggerReplay ||
		run.Status != domain.StatusPending {
		t.Errorf("the replay is %+v", run)
	}
	if !run.ScheduledFor.Equal(a.ScheduledFor) || run.JobVersion != 2 || run.DueAt.Before(a.Lease.ClaimedAt) {
		t.Errorf("slot %s, version %d, due at %s", run.ScheduledFor, run.JobVersion, run.DueAt)
	}
	if !c.woken() {
		t.Error("the tick loop was not told")
	}
	again := c.claimAll(uuid.New())
	if len(again) != 1 || again[0].WebhookID != a.RunID ||
		again[0].IdempotencyKey != domain.IdempotencyKey(domain.TriggerSchedule, a.RunID, job.ID, a.ScheduledFor) {
		t.Fatalf("claimed %+v", again)
	}
	original := c.run(a.RunID)
	if original.Status != domain.StatusDead {
		t.Errorf("what was final is %s", original.Status)
	}
	found, _, err := c.Letters.ListDeadLetters(t.Context(), c.tenant, letters.DeadLetterFilter{Resolved: resolved})
	if err != nil || len(found) != 1 || found[0].ReplayedAs == nil || *found[0].ReplayedAs != run.ID ||
		orEmpty(found[0].Note) != "replayed as "+run.ID.String() {
		t.Errorf("the dead letter is %+v (%v)", found, err)
	}
}

func TestReplayIsRefused(t *testing.T) {
	state := func(c crud, dead uuid.UUID, want string) {
		c.t.Helper()
		_, err := c.For(c.tenant).ReplayDeadLetter(c.t.Context(), dead, "")
		if !errors.Is(err, ErrState) || !strings.Contains(err.Error(), want) {
			c.t.Errorf("error %v, want %q", err, want)
		}
	}
	t.Run("the second time", func(t *testing.T) {
		c := newCRUD(t)
		c.create("a")
		dead := c.die("a", 1)[0]
		run := c.replay(dead)
		state(c, dead, "was replayed as run "+run.ID.String())
		c.wantCount(1, "replays", `SELECT count(*) FROM punctual.runs WHERE trigger = 'replay'`)
	})
	t.Run("when the replay died, which is replayed in its place and carries the first one's ids", func(t *testing.T) {
		c := newCRUD(t)
		c.create("a")
		dead := c.die("a", 1)[0]
		first := c.replay(dead)
		c.finish(c.claimAll(uuid.New())[0], domain.Bury, domain.ReasonTimeout)
		state(c, dead, "run "+first.ID.String()+", which is dead as well")
		second := c.replay(first.ID)
		a := c.claimAll(uuid.New())
		if len(a) != 1 || a[0].RunID != second.ID || a[0].WebhookID != dead || a[0].IdempotencyKey != dead.String() ||
			*second.ReplayOf != first.ID {
			t.Errorf("claimed %+v", a)
		}
	})
	t.Run("but not when the replay was cancelled", func(t *testing.T) {
		c := newCRUD(t)
		c.create("a")
		dead := c.die("a", 1)[0]
		c.cancel(c.replay(dead).ID)
		c.replay(dead)
	})
	t.Run("of a deleted job", func(t *testing.T) {
		c := newCRUD(t)
		c.create("a")
		dead := c.die("a", 1)[0]
		c.deleteJob("a")
		state(c, dead, `job "a" was deleted`)
		if d, err := c.Letters.ResolveDeadLetter(t.Context(), c.tenant, dead, "n"); err != nil ||
			d.ResolvedAt == nil || orEmpty(d.Note) != "n" {
			t.Errorf("resolved: %+v (%v)", d, err)
		}
	})
	t.Run("once resolved, which keeps its first note", func(t *testing.T) {
		c := newCRUD(t)
		c.create("a")
		dead := c.die("a", 1)[0]
		for _, note := range []string{"first", "second"} {
			if d, err := c.Letters.ResolveDeadLetter(t.Context(), c.tenant, dead, note); err != nil || orEmpty(d.Note) != "first" {
				t.Errorf("%+v (%v)", d, err)
			}
		}
		state(c, dead, "was resolved at")
	})
	t.Run("of another tenant's, and of what is no dead letter", func(t *testing.T) {
		c := newCRUD(t)
		c.create("a")
		dead := c.die("a", 1)[0]
		_, err := c.For(c.tenant+1).ReplayDeadLetter(t.Context(), dead, "")
		wantError(t, err, ErrNotFound)
		_, err = c.Letters.ResolveDeadLetter(t.Context(), c.tenant, uuid.New(), "")
		wantError(t, err, ErrNotFound)
	})
}

func TestReplaysAtOnceMakeOneRun(t *testing.T) {
	c := newCRUD(t)
	c.create("a")
	dead := c.die("a", 1)[0]
	errs := make([]error, 5)
	var replays sync.WaitGroup
	for i := range errs {
		replays.Go(func() { _, errs[i] = c.For(c.tenant).ReplayDeadLetter(t.Context(), dead, "") })
	}
	replays.Wait()
	wantOneWinner(t, errs, ErrState)
	c.wantCount(1, "runs", `SELECT count(*) FROM punctual.runs WHERE replay_of = $1`, dead)
}

func TestReplaysOfAJobThatMustNotOverlap(t *testing.T) {
	for _, policy := range []domain.ConcurrencyPolicy{
		domain.PolicyForbid, domain.PolicyReplace, domain.PolicyWait,
	} {
		t.Run(string(policy)+": run one at a time, are not skipped and replace nothing", func(t *testing.T) {
			c := newCRUD(t)
			c.create("a", overlapping(policy))
			dead := c.die("a", 2)
			c.trigger("a")
			active := c.claimAll(uuid.New())[0]
			first, second := c.replay(dead[0]), c.replay(dead[1])
			for _, next := range []uuid.UUID{first.ID, second.ID} {
				if got := c.claimAll(uuid.New()); len(got) != 0 {
					t.Fatalf("run %s started beside the active one", got[0].RunID)
				}
				c.finish(active, domain.Succeed, "")
				c.exec(`UPDATE punctual.ready SET due_at = now() WHERE run_id = $1`, next) // when it next looks at the gate
				got := c.claimAll(uuid.New())
				if len(got) != 1 || got[0].RunID != next {
					t.Fatalf("claimed %v", got)
				}
				active = got[0]
			}
			c.finish(active, domain.Succeed, "")
			c.wantCount(0, "were skipped or cancelled",
				`SELECT count(*) FROM punctual.runs WHERE status IN ('skipped', 'cancelled')`)
		})
	}
}

func TestListDeadLettersSelects(t *testing.T) {
	c := newCRUD(t)
	a, b := c.create("a", labelled("team", "x")), c.create("b")
	inA := c.die("a", 2)
	inB := c.die("b", 1)
	c.exec(`UPDATE punctual.dead_letters SET reason = 'gone', scheduled_for = '2020-01-01' WHERE run_id = $1`, inA[0])
	if _, err := c.Letters.ResolveDeadLetter(t.Context(), c.tenant, inA[1], ""); err != nil {
		t.Fatal(err)
	}
	c.deleteJob("b")
	day := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		filter letters.DeadLetterFilter
		want   []uuid.UUID
	}{
		"open ones":                    {letters.DeadLetterFilter{Resolved: open}, []uuid.UUID{inA[0], inB[0]}},
		"resolved ones":                {letters.DeadLetterFilter{Resolved: resolved}, []uuid.UUID{inA[1]}},
		"any":                          {letters.DeadLetterFilter{}, []uuid.UUID{inA[0], inA[1], inB[0]}},
		"by job":                       {letters.DeadLetterFilter{Job: "a", Resolved: open}, []uuid.UUID{inA[0]}},
		"by a job's id":                {letters.DeadLetterFilter{Job: a.ID.String()}, inA},
		"a deleted job only by job_id": {letters.DeadLetterFilter{Job: b.ID.String()}, nil},
		"by the id of a deleted job":   {letters.DeadLetterFilter{JobID: &b.ID}, inB},
		"by reason":                    {letters.DeadLetterFilter{Reason: domain.ReasonGone}, inA[:1]},
		"by label":                     {letters.DeadLetterFilter{Labels: map[string]string{"team": "x"}}, inA},
		"from a slot on, inclusive":    {letters.DeadLetterFilter{From: &day, To: new(day.Add(time.Second))}, inA[:1]},
		"up to a slot, exclusive":      {letters.DeadLetterFilter{To: &day}, nil},
	} {
		want := slices.Clone(test.want)
		slices.SortFunc(want, pg.CompareIDs)
		if got := c.letters(test.filter); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	var all []uuid.UUID
	page := pg.Page{Limit: 1}
	for {
		found, next, err := c.Letters.ListDeadLetters(t.Context(), c.tenant, letters.DeadLetterFilter{Page: page})
		if err != nil || len(found) != 1 {
			t.Fatalf("page of %d (%v)", len(found), err)
		}
		all = append(all, found[0].RunID)
		if page.Cursor = next; next == "" {
			break
		}
	}
	if len(all) != 3 || !slices.IsSortedFunc(all, func(a, b uuid.UUID) int { return pg.CompareIDs(b, a) }) {
		t.Errorf("pages of %v", all)
	}
	var bad *pg.CursorError
	if _, _, err := c.Runs.ListRuns(t.Context(), c.tenant,
		runs.Filter{Page: pg.Page{Cursor: "ZAAAAAAAAAAAAAAAAAAAAAA"}}); !errors.As(err, &bad) {
		t.Errorf("a cursor of another list: %v", err)
	}
}
