package letters_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/letters"
	"punctual/store/pg"
	"punctual/store/runs"
)

var (
	open     = new(false)
	resolved = new(true)
)

func TestReplayMakesANewRunOfADeadOne(t *testing.T) {
	c := NewFixture(t)
	job := c.Create("a")
	c.SlotAgo(job.ID, 0)
	a := c.ClaimAll(uuid.New())[0]
	c.Finish(a, domain.Bury, domain.ReasonHTTP5xx)
	c.Edit("a", func(d *jobspec.Definition) { d.Target.URL = "https://example.com/fixed" })
	run := c.Replay(a.RunID)
	if run.ID == a.RunID || run.ReplayOf == nil || *run.ReplayOf != a.RunID || run.Trigger != domain.TriggerReplay ||
		run.Status != domain.StatusPending {
		t.Errorf("the replay is %+v", run)
	}
	if !run.ScheduledFor.Equal(a.ScheduledFor) || run.JobVersion != 2 || run.DueAt.Before(a.Lease.ClaimedAt) {
		t.Errorf("slot %s, version %d, due at %s", run.ScheduledFor, run.JobVersion, run.DueAt)
	}
	if !c.Woken() {
		t.Error("the tick loop was not told")
	}
	again := c.ClaimAll(uuid.New())
	if len(again) != 1 || again[0].WebhookID != a.RunID ||
		again[0].IdempotencyKey != domain.IdempotencyKey(domain.TriggerSchedule, a.RunID, job.ID, a.ScheduledFor) {
		t.Fatalf("claimed %+v", again)
	}
	original := c.Run(a.RunID)
	if original.Status != domain.StatusDead {
		t.Errorf("what was final is %s", original.Status)
	}
	found, _, err := c.Letters.ListDeadLetters(t.Context(), c.Tenant, letters.DeadLetterFilter{Resolved: resolved})
	if err != nil || len(found) != 1 || found[0].ReplayedAs == nil || *found[0].ReplayedAs != run.ID ||
		OrEmpty(found[0].Note) != "replayed as "+run.ID.String() {
		t.Errorf("the dead letter is %+v (%v)", found, err)
	}
}

func TestReplayIsRefused(t *testing.T) {
	t.Parallel()
	state := func(c Fixture, dead uuid.UUID, want string) {
		c.T.Helper()
		_, err := c.For(c.Tenant).ReplayDeadLetter(c.T.Context(), dead, "")
		if !errors.Is(err, store.ErrState) || !strings.Contains(err.Error(), want) {
			c.T.Errorf("error %v, want %q", err, want)
		}
	}
	t.Run("the second time", func(t *testing.T) {
		c := NewFixture(t)
		c.Create("a")
		dead := c.Die("a", 1)[0]
		run := c.Replay(dead)
		state(c, dead, "was replayed as run "+run.ID.String())
		c.WantCount(1, "replays", `SELECT count(*) FROM punctual.runs WHERE trigger = 'replay'`)
	})
	t.Run("when the replay died, which is replayed in its place and carries the first one's ids", func(t *testing.T) {
		c := NewFixture(t)
		c.Create("a")
		dead := c.Die("a", 1)[0]
		first := c.Replay(dead)
		c.Finish(c.ClaimAll(uuid.New())[0], domain.Bury, domain.ReasonTimeout)
		state(c, dead, "run "+first.ID.String()+", which is dead as well")
		second := c.Replay(first.ID)
		a := c.ClaimAll(uuid.New())
		if len(a) != 1 || a[0].RunID != second.ID || a[0].WebhookID != dead || a[0].IdempotencyKey != dead.String() ||
			*second.ReplayOf != first.ID {
			t.Errorf("claimed %+v", a)
		}
	})
	t.Run("but not when the replay was cancelled", func(t *testing.T) {
		c := NewFixture(t)
		c.Create("a")
		dead := c.Die("a", 1)[0]
		c.Cancel(c.Replay(dead).ID)
		c.Replay(dead)
	})
	t.Run("of a deleted job", func(t *testing.T) {
		c := NewFixture(t)
		c.Create("a")
		dead := c.Die("a", 1)[0]
		c.DeleteJob("a")
		state(c, dead, `job "a" was deleted`)
		if d, err := c.Letters.ResolveDeadLetter(t.Context(), c.Tenant, dead, "n"); err != nil ||
			d.ResolvedAt == nil || OrEmpty(d.Note) != "n" {
			t.Errorf("resolved: %+v (%v)", d, err)
		}
	})
	t.Run("once resolved, which keeps its first note", func(t *testing.T) {
		c := NewFixture(t)
		c.Create("a")
		dead := c.Die("a", 1)[0]
		for _, note := range []string{"first", "second"} {
			if d, err := c.Letters.ResolveDeadLetter(t.Context(), c.Tenant, dead, note); err != nil || OrEmpty(d.Note) != "first" {
				t.Errorf("%+v (%v)", d, err)
			}
		}
		state(c, dead, "was resolved at")
	})
	t.Run("of another tenant's, and of what is no dead letter", func(t *testing.T) {
		c := NewFixture(t)
		c.Create("a")
		dead := c.Die("a", 1)[0]
		_, err := c.For(c.Tenant+1).ReplayDeadLetter(t.Context(), dead, "")
		WantError(t, err, store.ErrNotFound)
		_, err = c.Letters.ResolveDeadLetter(t.Context(), c.Tenant, uuid.New(), "")
		WantError(t, err, store.ErrNotFound)
	})
}

func TestReplaysAtOnceMakeOneRun(t *testing.T) {
	c := NewFixture(t)
	c.Create("a")
	dead := c.Die("a", 1)[0]
	errs := make([]error, 5)
	var replays sync.WaitGroup
	for i := range errs {
		replays.Go(func() { _, errs[i] = c.For(c.Tenant).ReplayDeadLetter(t.Context(), dead, "") })
	}
	replays.Wait()
	WantOneWinner(t, errs, store.ErrState)
	c.WantCount(1, "runs", `SELECT count(*) FROM punctual.runs WHERE replay_of = $1`, dead)
}

func TestListDeadLettersSelects(t *testing.T) {
	c := NewFixture(t)
	a, b := c.Create("a", Labelled("team", "x")), c.Create("b")
	inA := c.Die("a", 2)
	inB := c.Die("b", 1)
	c.Exec(`UPDATE punctual.dead_letters SET reason = 'gone', scheduled_for = '2020-01-01' WHERE run_id = $1`, inA[0])
	if _, err := c.Letters.ResolveDeadLetter(t.Context(), c.Tenant, inA[1], ""); err != nil {
		t.Fatal(err)
	}
	c.DeleteJob("b")
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
		if got := c.DeadLetters(test.filter); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	var all []uuid.UUID
	page := pg.Page{Limit: 1}
	for {
		found, next, err := c.Letters.ListDeadLetters(t.Context(), c.Tenant, letters.DeadLetterFilter{Page: page})
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
	if _, _, err := c.Runs.ListRuns(t.Context(), c.Tenant,
		runs.Filter{Page: pg.Page{Cursor: "ZAAAAAAAAAAAAAAAAAAAAAA"}}); !errors.As(err, &bad) {
		t.Errorf("a cursor of another list: %v", err)
	}
}
