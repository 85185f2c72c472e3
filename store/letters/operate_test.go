package letters_test

import (
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/store"
	"punctual/store/letters"
	"punctual/store/pg"
	"punctual/store/runs"
)

// workAtOnce does batches as three replicas would, until no operation has work left. It returns at once.
func workAtOnce(c Fixture) (replicas *sync.WaitGroup) {
	replicas = new(sync.WaitGroup)
	for range 3 {
		replicas.Go(func() {
			for left := true; left; {
				var err error
				if _, left, err = c.Letters.Operate(c.T.Context()); err != nil {
					c.T.Error(err)
					return
				}
			}
		})
	}
	c.T.Cleanup(replicas.Wait)
	return replicas
}

// cutOffBatch does a batch whose backend Postgres ends before it writes to a table, after it wrote to others.
func cutOffBatch(c Fixture, table string) {
	c.T.Helper()
	c.Exec(`UPDATE punctual.operations SET next_at = now()`)
	free := c.Locks(`LOCK TABLE punctual.` + table + ` IN SHARE MODE`)
	died := make(chan error)
	go func() {
		_, _, err := c.Letters.Operate(c.T.Context())
		died <- err
	}()
	c.Waiting(1)
	c.Exec(`SELECT pg_terminate_backend(pid)
		FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	if err := <-died; err == nil {
		c.T.Fatal("the batch succeeded")
	}
	free()
}

// wantAtRate fails the test unless one operation, of nine things at ten a second, has kept to its rate: its batches
// hold two each, so the last one comes after 0.8 s.
func wantAtRate(c Fixture) {
	c.T.Helper()
	c.WantCount(1, "it was faster than its rate", `SELECT count(*)
		FROM punctual.operations
		WHERE finished_at - created_at >= interval '0.8 s'`)
}

// wantReplays fails the test unless n dead letters were replayed, each exactly once.
func wantReplays(c Fixture, n int) {
	c.T.Helper()
	if all, of := c.Count(`SELECT count(*) FROM punctual.runs WHERE trigger = 'replay'`),
		c.Count(`SELECT count(DISTINCT replay_of) FROM punctual.runs`); all != n || of != n {
		c.T.Errorf("%d replays of %d dead letters, want %d", all, of, n)
	}
}

func TestBulkReplay(t *testing.T) {
	t.Parallel()
	t.Run("replays what was open when it was asked for, and nothing that died later", func(t *testing.T) {
		c := NewFixture(t)
		c.Create("a")
		c.Create("b")
		c.Die("a", 3)
		c.Die("b", 1)
		r := letters.BulkRequest{Kind: letters.OperationReplay, Filter: letters.DeadLetterFilter{Job: "a"}, Note: "why"}
		if n, err := c.Letters.CountDeadLetters(t.Context(), c.Tenant, r); err != nil || n != 3 {
			t.Fatalf("a dry run counts %d (%v)", n, err)
		}
		if n := c.Count(`SELECT count(*) FROM punctual.operations`); n != 0 {
			t.Fatalf("a dry run started something")
		}
		o := c.Start(r)
		c.WantProgress(o.ID, letters.OperationRunning, 3, 0, 0)
		if !c.Wants(letters.Chore) {
			t.Error("no heartbeat asks for it")
		}
		late := c.Die("a", 1)
		c.Work()
		c.WantProgress(o.ID, letters.OperationDone, 3, 3, 0)
		wantReplays(c, 3)
		if got := c.DeadLetters(letters.DeadLetterFilter{Job: "a", Resolved: open}); !slices.Equal(got, late) {
			t.Errorf("open are %v", got)
		}
		c.WantCount(3, "are marked as replayed", `SELECT count(*)
			FROM punctual.dead_letters
			WHERE note = 'replayed as ' || replayed_as || ': why' AND operation IS NULL`)
		if c.Wants(letters.Chore) {
			t.Error("a heartbeat still asks for it")
		}
		wantOutcomes(c, o.ID, runs.Outcomes{Unended: 3})
		c.Exec(`UPDATE punctual.runs SET finished_at = now(), status = CASE WHEN id = (SELECT min(replayed_as::text)::uuid
			FROM punctual.dead_letters) THEN 'succeeded' ELSE 'dead' END WHERE trigger = 'replay'`)
		wantOutcomes(c, o.ID, runs.Outcomes{Succeeded: 1, Dead: 2})
		one, err := c.For(c.Tenant).ReplayDeadLetter(t.Context(), late[0], "")
		Must(t, err)
		wantOutcomes(c, o.ID, runs.Outcomes{Succeeded: 1, Dead: 2})
		c.WantCount(0, "is the operation's, though it was replayed alone", `SELECT count(*) FROM punctual.dead_letters
			WHERE replayed_as = '`+one.ID.String()+`' AND replayed_by IS NOT NULL`)
	})
	t.Run("of the latest of each job leaves the others open", func(t *testing.T) {
		c := NewFixture(t)
		c.Create("a")
		c.Create("b")
		want := []uuid.UUID{c.Die("a", 3)[2], c.Die("b", 2)[1]}
		r := letters.BulkRequest{Kind: letters.OperationReplay, LatestPerJob: true}
		if n, err := c.Letters.CountDeadLetters(t.Context(), c.Tenant, r); err != nil || n != 2 {
			t.Errorf("a dry run counts %d (%v)", n, err)
		}
		o := c.Start(r)
		c.Work()
		c.WantProgress(o.ID, letters.OperationDone, 2, 2, 0)
		got := c.DeadLetters(letters.DeadLetterFilter{Resolved: resolved})
		slices.SortFunc(want, pg.CompareIDs)
		if !slices.Equal(got, want) {
			t.Errorf("replayed %v, want %v", got, want)
		}
	})
	t.Run("keeps to its rate by the database's clock", func(t *testing.T) {
		c := NewFixture(t)
		c.Create("a")
		c.Die("a", 9)
		o := c.Start(letters.BulkRequest{Kind: letters.OperationReplay, MaxPerSecond: 10})
		c.Work() // as fast as possible: the operation's row says when the next batch is too early
		c.WantProgress(o.ID, letters.OperationDone, 9, 9, 0)
		wantAtRate(c)
	})
	t.Run("of nothing is done at once", func(t *testing.T) {
		c := NewFixture(t)
		o := c.Start(letters.BulkRequest{Kind: letters.OperationReplay})
		c.WantProgress(o.ID, letters.OperationDone, 0, 0, 0)
	})
	t.Run("counts as failed what has gone meanwhile, and goes on", func(t *testing.T) {
		c := NewFixture(t)
		c.Create("a")
		c.Create("gone")
		dead := c.Die("a", 2)
		c.Die("gone", 1)
		o := c.Start(letters.BulkRequest{Kind: letters.OperationReplay})
		c.Replay(dead[0])
		c.DeleteJob("gone")
		c.Work()
		if got := c.WantProgress(o.ID, letters.OperationDone, 3, 1, 2); got.Error == nil {
			t.Error("it does not say what failed")
		}
		wantReplays(c, 2)
	})
	t.Run("feeds a job that must not overlap one at a time, oldest first, and others beside it", func(t *testing.T) {
		c := NewFixture(t)
		c.Create("a", Forbid)
		c.Create("b")
		inA := c.Die("a", 3)
		c.Die("b", 2)
		o := c.Start(letters.BulkRequest{Kind: letters.OperationReplay})
		next := func() { c.Exec(`UPDATE punctual.operations SET next_at = now()`); c.Batch() }
		next()
		next()
		for i, dead := range inA {
			state := map[bool]letters.OperationState{true: letters.OperationDone, false: letters.OperationRunning}[i == 2]
			c.WantProgress(o.ID, state, 5, 3+i, 0)
			runs := slices.DeleteFunc(c.ClaimAll(uuid.New()), func(a domain.Assignment) bool { return a.Job.Name == "b" })
			if len(runs) != 1 || runs[0].WebhookID != dead {
				t.Fatalf("replay %d: claimed %+v", i, runs)
			}
			next() // while the replay is active
			c.Finish(runs[0], domain.Succeed, "")
			next()
		}
		wantReplays(c, 5)
	})
}

func TestReplaysMakeThePartitionTheyNeed(t *testing.T) {
	c := NewFixture(t)
	c.Create("a")
	c.Die("a", 2)
	o := c.Start(letters.BulkRequest{Kind: letters.OperationReplay})
	c.DropDays(0, 0)
	for n := 0; c.Batch(); n++ {
		if n == 10 {
			t.Fatal("it is tried again and again")
		}
	}
	c.WantProgress(o.ID, letters.OperationDone, 2, 2, 0)
}

func TestBulkResolve(t *testing.T) {
	c := NewFixture(t)
	c.Create("a", Labelled("team", "x"))
	c.Create("b")
	c.Die("a", 2)
	left := c.Die("b", 1)
	o := c.Start(letters.BulkRequest{
		Kind: letters.OperationResolve, Filter: letters.DeadLetterFilter{Labels: map[string]string{"team": "x"}}, Note: "known",
	})
	c.Work()
	c.WantProgress(o.ID, letters.OperationDone, 2, 2, 0)
	c.WantCount(2, "resolved",
		`SELECT count(*) FROM punctual.dead_letters WHERE note = 'known' AND replayed_as IS NULL`)
	if got := c.DeadLetters(letters.DeadLetterFilter{Resolved: open}); !slices.Equal(got, left) {
		t.Errorf("open are %v", got)
	}
	wantReplays(c, 0)
}

func TestTwoOperationsNeverShareADeadLetter(t *testing.T) {
	c := NewFixture(t)
	c.Create("a")
	c.Die("a", 2)
	replay := letters.BulkRequest{Kind: letters.OperationReplay}
	first, second := c.Start(replay), c.Start(replay)
	c.Work()
	c.WantProgress(first.ID, letters.OperationDone, 2, 2, 0)
	c.WantProgress(second.ID, letters.OperationDone, 0, 0, 0)
	wantReplays(c, 2)
}

func TestCancelOperation(t *testing.T) {
	c := NewFixture(t)
	c.Create("a")
	c.Die("a", 5)
	o := c.Start(letters.BulkRequest{Kind: letters.OperationReplay, MaxPerSecond: 8})
	c.Batch()
	for range 2 {
		if got, err := c.Letters.CancelOperation(
			t.Context(), c.Tenant, o.ID,
		); err != nil || got.State != letters.OperationCancelled {
			t.Fatalf("%+v (%v)", got, err)
		}
	}
	if c.Batch() {
		t.Error("work is left")
	}
	c.WantProgress(o.ID, letters.OperationCancelled, 5, 2, 0)
	wantReplays(c, 2)
	again := c.Start(letters.BulkRequest{Kind: letters.OperationReplay})
	c.Work()
	c.WantProgress(again.ID, letters.OperationDone, 3, 3, 0)
	wantReplays(c, 5)
	_, err := c.Letters.CancelOperation(t.Context(), c.Tenant, again.ID)
	WantError(t, err, store.ErrState)
	_, err = c.Letters.CancelOperation(t.Context(), c.Tenant+1, o.ID)
	WantError(t, err, store.ErrNotFound)
}

// wantOutcomes checks what became of the runs that an operation made.
func wantOutcomes(c Fixture, id uuid.UUID, want runs.Outcomes) {
	c.T.Helper()
	o, err := c.Letters.GetOperation(c.T.Context(), c.Tenant, id)
	Must(c.T, err)
	if o.Outcomes == nil {
		c.T.Fatal("the operation says no outcomes")
	}
	want.Rate()
	got := *o.Outcomes
	if n := want.Succeeded + want.Dead + want.Unended; got.Runs != n || !reflect.DeepEqual(got.Outcomes, want) {
		c.T.Errorf("the outcomes of %d runs are %+v, want %+v of %d", got.Runs, got.Outcomes, want, n)
	}
}

func TestOperationGoesOnWhenAWorkerDiesInABatch(t *testing.T) {
	c := NewFixture(t)
	c.Create("a")
	c.Die("a", 6)
	o := c.Start(letters.BulkRequest{Kind: letters.OperationReplay, MaxPerSecond: 8})
	c.Batch()
	c.WantProgress(o.ID, letters.OperationRunning, 6, 2, 0)
	cutOffBatch(c, "run_data")
	c.WantProgress(o.ID, letters.OperationRunning, 6, 2, 0)
	wantReplays(c, 2)
	c.Work()
	c.WantProgress(o.ID, letters.OperationDone, 6, 6, 0)
	wantReplays(c, 6)
}

func TestReplicasAtOnceReplayEachDeadLetterOnce(t *testing.T) {
	c := NewFixture(t)
	c.Create("a")
	c.Create("b")
	dead := append(c.Die("a", 10), c.Die("b", 10)...)
	first := c.Start(letters.BulkRequest{Kind: letters.OperationReplay, Filter: letters.DeadLetterFilter{Job: "a"}, MaxPerSecond: 100})
	second := c.Start(letters.BulkRequest{Kind: letters.OperationReplay, MaxPerSecond: 100})
	replicas := workAtOnce(c)
	for _, id := range dead[:3] { // people replay dead letters at the same time
		if _, err := c.For(c.Tenant).ReplayDeadLetter(t.Context(), id, ""); err != nil {
			WantError(t, err, store.ErrState)
		}
	}
	replicas.Wait()
	wantReplays(c, 20)
	for _, id := range []uuid.UUID{first.ID, second.ID} {
		if o := c.Operation(id); o.State != letters.OperationDone || o.Done+o.Failed != 10 {
			t.Errorf("operation %+v", o)
		}
	}
}

func TestOperationThatCannotBeCarriedOnFailsAndSaysWhy(t *testing.T) {
	c := NewFixture(t)
	c.Create("a")
	dead := c.Die("a", 1)
	o := c.Start(letters.BulkRequest{Kind: letters.OperationReplay})
	c.Exec(`ALTER TABLE punctual.runs ADD CONSTRAINT no_more_replays CHECK (trigger <> 'replay')`)
	c.Batch()
	if got := c.WantProgress(o.ID, letters.OperationFailed, 1, 0, 0); got.Error == nil {
		t.Error("it does not say why")
	}
	if got := c.DeadLetters(letters.DeadLetterFilter{Resolved: open}); !slices.Equal(got, dead) ||
		c.Count(`SELECT count(operation) FROM punctual.dead_letters`) != 0 {
		t.Errorf("open are %v", got)
	}
	if c.Batch() {
		t.Error("work is left")
	}
}

func TestListOperationsPages(t *testing.T) {
	c := NewFixture(t)
	var want []uuid.UUID
	for range 3 {
		want = append([]uuid.UUID{c.Start(letters.BulkRequest{
			Kind: letters.OperationResolve, Filter: letters.DeadLetterFilter{To: new(time.Unix(0, 0))},
		}).ID}, want...)
	}
	var got []uuid.UUID
	f := letters.OperationFilter{State: letters.OperationDone, Page: pg.Page{Limit: 2}}
	for {
		found, next, err := c.Letters.ListOperations(t.Context(), c.Tenant, f)
		Must(t, err)
		for _, o := range found {
			got = append(got, o.ID)
		}
		if f.Cursor = next; next == "" {
			break
		}
	}
	slices.SortFunc(want, func(a, b uuid.UUID) int { return pg.CompareIDs(b, a) })
	if !slices.Equal(got, want) {
		t.Errorf("pages of %v, want %v", got, want)
	}
	running := letters.OperationFilter{State: letters.OperationRunning}
	if found, _, err := c.Letters.ListOperations(t.Context(), c.Tenant, running); err != nil ||
		len(found) != 0 {
		t.Errorf("%d are running (%v)", len(found), err)
	}
}

func TestDeadLettersWorkInEveryExecMode(t *testing.T) {
	t.Parallel()
	EachExecMode(t, func(t *testing.T, c Fixture) {
		ctx := t.Context()
		job := c.Create("a", Forbid, Labelled("x", "y"))
		dead := c.Die("a", 4)
		c.Finish(claimOnly(c, c.Replay(dead[0])), domain.Bury, domain.ReasonTimeout)
		filter := letters.DeadLetterFilter{
			Job: "a", JobID: &job.ID, Reason: domain.ReasonHTTP5xx,
			From: new(time.Unix(0, 0)), To: new(time.Now().Add(time.Hour)),
			Labels: map[string]string{"x": "y"}, Resolved: open, Page: pg.Page{Limit: 2},
		}
		if found, next, err := c.Letters.ListDeadLetters(ctx, c.Tenant, filter); err != nil || len(found) != 2 || next == "" {
			t.Errorf("%d dead letters, %v", len(found), err)
		}
		r := letters.BulkRequest{
			Kind: letters.OperationReplay, Filter: filter, LatestPerJob: true, MaxPerSecond: 5, Note: "n",
		}
		if n, err := c.Letters.CountDeadLetters(ctx, c.Tenant, r); err != nil || n != 1 {
			t.Errorf("%d counted, %v", n, err)
		}
		o := c.Start(r)
		c.Work()
		c.WantProgress(o.ID, letters.OperationDone, 1, 1, 0)
		o = c.Start(letters.BulkRequest{Kind: letters.OperationResolve, Filter: filter})
		c.Work()
		c.WantProgress(o.ID, letters.OperationDone, 2, 2, 0)
		if _, err := c.Letters.ResolveDeadLetter(ctx, c.Tenant, dead[1], ""); err != nil {
			t.Error(err)
		}
		started := c.Start(letters.BulkRequest{Kind: letters.OperationReplay})
		if _, err := c.Letters.CancelOperation(ctx, c.Tenant, started.ID); err != nil {
			t.Error(err)
		}
		if found, _, err := c.Letters.ListOperations(
			ctx, c.Tenant, letters.OperationFilter{},
		); err != nil || len(found) != 3 {
			t.Errorf("%d operations, %v", len(found), err)
		}
	})
}

// claimOnly claims the run, and fails the test if a claim finds any other run.
func claimOnly(c Fixture, run runs.Run) domain.Assignment {
	c.T.Helper()
	runs := c.ClaimAll(uuid.New())
	if len(runs) != 1 || runs[0].RunID != run.ID {
		c.T.Fatalf("claimed %v", runs)
	}
	return runs[0]
}
