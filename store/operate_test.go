package store

import (
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/letters"
	"punctual/store/pg"
	"punctual/store/runs"
)

func (c crud) start(r letters.BulkRequest) letters.Operation {
	c.t.Helper()
	o, err := c.For(c.tenant).StartOperation(c.t.Context(), r)
	must(c.t, err)
	return o
}

func (c crud) operation(id uuid.UUID) letters.Operation {
	c.t.Helper()
	o, err := c.Letters.GetOperation(c.t.Context(), c.tenant, id)
	must(c.t, err)
	return o
}

// batch does one batch, and reports whether an operation has work left.
func (c crud) batch() bool {
	c.t.Helper()
	_, left, err := c.Letters.Operate(c.t.Context())
	must(c.t, err)
	return left
}

// work does batches until no operation has work left.
func (c crud) work() {
	c.t.Helper()
	for c.batch() {
	}
}

// nextBatch does the next batch without waiting for its time.
func (c crud) nextBatch() {
	c.t.Helper()
	c.exec(`UPDATE punctual.operations SET next_at = now() WHERE state = 'running'`)
	c.batch()
}

// workAtOnce does batches as three replicas would, until no operation has work left. It returns at once.
func (c crud) workAtOnce() (replicas *sync.WaitGroup) {
	replicas = new(sync.WaitGroup)
	for range 3 {
		replicas.Go(func() {
			for left := true; left; {
				var err error
				if _, left, err = c.Letters.Operate(c.t.Context()); err != nil {
					c.t.Error(err)
					return
				}
			}
		})
	}
	c.t.Cleanup(replicas.Wait)
	return replicas
}

// cutOffBatch does a batch whose backend Postgres ends before it writes to a table, after it wrote to others.
func (c crud) cutOffBatch(table string) {
	c.t.Helper()
	c.exec(`UPDATE punctual.operations SET next_at = now()`)
	free := c.locks(`LOCK TABLE punctual.` + table + ` IN SHARE MODE`)
	died := make(chan error)
	go func() {
		_, _, err := c.Letters.Operate(c.t.Context())
		died <- err
	}()
	c.waiting(1)
	c.exec(`SELECT pg_terminate_backend(pid)
		FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	if err := <-died; err == nil {
		c.t.Fatal("the batch succeeded")
	}
	free()
}

// wantProgress fails the test unless the operation has this state and these counts.
func (c crud) wantProgress(id uuid.UUID, state letters.OperationState, matched, done, failed int) letters.Operation {
	c.t.Helper()
	o := c.operation(id)
	if o.State != state || o.Matched != matched || o.Done != done || o.Failed != failed ||
		(o.FinishedAt != nil) != (state != letters.OperationRunning) {
		c.t.Errorf("operation %+v; want %s, %d matched, %d done, %d failed", o, state, matched, done, failed)
	}
	return o
}

// wantAtRate fails the test unless one operation, of nine things at ten a second, has kept to its rate: its batches
// hold two each, so the last one comes after 0.8 s.
func (c crud) wantAtRate() {
	c.t.Helper()
	c.wantCount(1, "it was faster than its rate", `SELECT count(*)
		FROM punctual.operations
		WHERE finished_at - created_at >= interval '0.8 s'`)
}

// wantReplays fails the test unless n dead letters were replayed, each exactly once.
func (c crud) wantReplays(n int) {
	c.t.Helper()
	if all, of := c.count(`SELECT count(*) FROM punctual.runs WHERE trigger = 'replay'`),
		c.count(`SELECT count(DISTINCT replay_of) FROM punctual.runs`); all != n || of != n {
		c.t.Errorf("%d replays of %d dead letters, want %d", all, of, n)
	}
}

func TestBulkReplay(t *testing.T) {
	t.Run("replays what was open when it was asked for, and nothing that died later", func(t *testing.T) {
		c := newCRUD(t)
		c.create("a")
		c.create("b")
		c.die("a", 3)
		c.die("b", 1)
		r := letters.BulkRequest{Kind: letters.OperationReplay, Filter: letters.DeadLetterFilter{Job: "a"}, Note: "why"}
		if n, err := c.Letters.CountDeadLetters(t.Context(), c.tenant, r); err != nil || n != 3 {
			t.Fatalf("a dry run counts %d (%v)", n, err)
		}
		if n := c.count(`SELECT count(*) FROM punctual.operations`); n != 0 {
			t.Fatalf("a dry run started something")
		}
		o := c.start(r)
		c.wantProgress(o.ID, letters.OperationRunning, 3, 0, 0)
		if !c.wants(letters.Chore) {
			t.Error("no heartbeat asks for it")
		}
		late := c.die("a", 1)
		c.work()
		c.wantProgress(o.ID, letters.OperationDone, 3, 3, 0)
		c.wantReplays(3)
		if got := c.letters(letters.DeadLetterFilter{Job: "a", Resolved: open}); !slices.Equal(got, late) {
			t.Errorf("open are %v", got)
		}
		c.wantCount(3, "are marked as replayed", `SELECT count(*)
			FROM punctual.dead_letters
			WHERE note = 'replayed as ' || replayed_as || ': why' AND operation IS NULL`)
		if c.wants(letters.Chore) {
			t.Error("a heartbeat still asks for it")
		}
		c.wantOutcomes(o.ID, runs.Outcomes{Unended: 3})
		c.exec(`UPDATE punctual.runs SET finished_at = now(), status = CASE WHEN id = (SELECT min(replayed_as::text)::uuid
			FROM punctual.dead_letters) THEN 'succeeded' ELSE 'dead' END WHERE trigger = 'replay'`)
		c.wantOutcomes(o.ID, runs.Outcomes{Succeeded: 1, Dead: 2})
		one, err := c.For(c.tenant).ReplayDeadLetter(t.Context(), late[0], "")
		must(t, err)
		c.wantOutcomes(o.ID, runs.Outcomes{Succeeded: 1, Dead: 2})
		c.wantCount(0, "is the operation's, though it was replayed alone", `SELECT count(*) FROM punctual.dead_letters
			WHERE replayed_as = '`+one.ID.String()+`' AND replayed_by IS NOT NULL`)
	})
	t.Run("of the latest of each job leaves the others open", func(t *testing.T) {
		c := newCRUD(t)
		c.create("a")
		c.create("b")
		want := []uuid.UUID{c.die("a", 3)[2], c.die("b", 2)[1]}
		r := letters.BulkRequest{Kind: letters.OperationReplay, LatestPerJob: true}
		if n, err := c.Letters.CountDeadLetters(t.Context(), c.tenant, r); err != nil || n != 2 {
			t.Errorf("a dry run counts %d (%v)", n, err)
		}
		o := c.start(r)
		c.work()
		c.wantProgress(o.ID, letters.OperationDone, 2, 2, 0)
		got := c.letters(letters.DeadLetterFilter{Resolved: resolved})
		slices.SortFunc(want, pg.CompareIDs)
		if !slices.Equal(got, want) {
			t.Errorf("replayed %v, want %v", got, want)
		}
	})
	t.Run("keeps to its rate by the database's clock", func(t *testing.T) {
		c := newCRUD(t)
		c.create("a")
		c.die("a", 9)
		o := c.start(letters.BulkRequest{Kind: letters.OperationReplay, MaxPerSecond: 10})
		c.work() // as fast as possible: the operation's row says when the next batch is too early
		c.wantProgress(o.ID, letters.OperationDone, 9, 9, 0)
		c.wantAtRate()
	})
	t.Run("of nothing is done at once", func(t *testing.T) {
		c := newCRUD(t)
		o := c.start(letters.BulkRequest{Kind: letters.OperationReplay})
		c.wantProgress(o.ID, letters.OperationDone, 0, 0, 0)
	})
	t.Run("counts as failed what has gone meanwhile, and goes on", func(t *testing.T) {
		c := newCRUD(t)
		c.create("a")
		c.create("gone")
		dead := c.die("a", 2)
		c.die("gone", 1)
		o := c.start(letters.BulkRequest{Kind: letters.OperationReplay})
		c.replay(dead[0])
		c.deleteJob("gone")
		c.work()
		if got := c.wantProgress(o.ID, letters.OperationDone, 3, 1, 2); got.Error == nil {
			t.Error("it does not say what failed")
		}
		c.wantReplays(2)
	})
	t.Run("feeds a job that must not overlap one at a time, oldest first, and others beside it", func(t *testing.T) {
		c := newCRUD(t)
		c.create("a", forbid)
		c.create("b")
		inA := c.die("a", 3)
		c.die("b", 2)
		o := c.start(letters.BulkRequest{Kind: letters.OperationReplay})
		next := func() { c.exec(`UPDATE punctual.operations SET next_at = now()`); c.batch() }
		next()
		next()
		for i, dead := range inA {
			state := map[bool]letters.OperationState{true: letters.OperationDone, false: letters.OperationRunning}[i == 2]
			c.wantProgress(o.ID, state, 5, 3+i, 0)
			runs := slices.DeleteFunc(c.claimAll(uuid.New()), func(a domain.Assignment) bool { return a.Job.Name == "b" })
			if len(runs) != 1 || runs[0].WebhookID != dead {
				t.Fatalf("replay %d: claimed %+v", i, runs)
			}
			next() // while the replay is active
			c.finish(runs[0], domain.Succeed, "")
			next()
		}
		c.wantReplays(5)
	})
}

func TestReplaysMakeThePartitionTheyNeed(t *testing.T) {
	c := newCRUD(t)
	c.create("a")
	c.die("a", 2)
	o := c.start(letters.BulkRequest{Kind: letters.OperationReplay})
	c.dropDays(0, 0)
	for n := 0; c.batch(); n++ {
		if n == 10 {
			t.Fatal("it is tried again and again")
		}
	}
	c.wantProgress(o.ID, letters.OperationDone, 2, 2, 0)
}

func TestBulkResolve(t *testing.T) {
	c := newCRUD(t)
	c.create("a", labelled("team", "x"))
	c.create("b")
	c.die("a", 2)
	left := c.die("b", 1)
	o := c.start(letters.BulkRequest{
		Kind: letters.OperationResolve, Filter: letters.DeadLetterFilter{Labels: map[string]string{"team": "x"}}, Note: "known",
	})
	c.work()
	c.wantProgress(o.ID, letters.OperationDone, 2, 2, 0)
	c.wantCount(2, "resolved",
		`SELECT count(*) FROM punctual.dead_letters WHERE note = 'known' AND replayed_as IS NULL`)
	if got := c.letters(letters.DeadLetterFilter{Resolved: open}); !slices.Equal(got, left) {
		t.Errorf("open are %v", got)
	}
	c.wantReplays(0)
}

func TestTwoOperationsNeverShareADeadLetter(t *testing.T) {
	c := newCRUD(t)
	c.create("a")
	c.die("a", 2)
	replay := letters.BulkRequest{Kind: letters.OperationReplay}
	first, second := c.start(replay), c.start(replay)
	c.work()
	c.wantProgress(first.ID, letters.OperationDone, 2, 2, 0)
	c.wantProgress(second.ID, letters.OperationDone, 0, 0, 0)
	c.wantReplays(2)
}

func TestCancelOperation(t *testing.T) {
	c := newCRUD(t)
	c.create("a")
	c.die("a", 5)
	o := c.start(letters.BulkRequest{Kind: letters.OperationReplay, MaxPerSecond: 8})
	c.batch()
	for range 2 {
		if got, err := c.Letters.CancelOperation(
			t.Context(), c.tenant, o.ID,
		); err != nil || got.State != letters.OperationCancelled {
			t.Fatalf("%+v (%v)", got, err)
		}
	}
	if c.batch() {
		t.Error("work is left")
	}
	c.wantProgress(o.ID, letters.OperationCancelled, 5, 2, 0)
	c.wantReplays(2)
	again := c.start(letters.BulkRequest{Kind: letters.OperationReplay})
	c.work()
	c.wantProgress(again.ID, letters.OperationDone, 3, 3, 0)
	c.wantReplays(5)
	_, err := c.Letters.CancelOperation(t.Context(), c.tenant, again.ID)
	wantError(t, err, ErrState)
	_, err = c.Letters.CancelOperation(t.Context(), c.tenant+1, o.ID)
	wantError(t, err, ErrNotFound)
}

// wantOutcomes checks what became of the runs that an operation made.
func (c crud) wantOutcomes(id uuid.UUID, want runs.Outcomes) {
	c.t.Helper()
	o, err := c.Letters.GetOperation(c.t.Context(), c.tenant, id)
	must(c.t, err)
	if o.Outcomes == nil {
		c.t.Fatal("the operation says no outcomes")
	}
	want.Rate()
	got := *o.Outcomes
	if n := want.Succeeded + want.Dead + want.Unended; got.Runs != n || !reflect.DeepEqual(got.Outcomes, want) {
		c.t.Errorf("the outcomes of %d runs are %+v, want %+v of %d", got.Runs, got.Outcomes, want, n)
	}
}

func TestOperationGoesOnWhenAWorkerDiesInABatch(t *testing.T) {
	c := newCRUD(t)
	c.create("a")
	c.die("a", 6)
	o := c.start(letters.BulkRequest{Kind: letters.OperationReplay, MaxPerSecond: 8})
	c.batch()
	c.wantProgress(o.ID, letters.OperationRunning, 6, 2, 0)
	c.cutOffBatch("run_data")
	c.wantProgress(o.ID, letters.OperationRunning, 6, 2, 0)
	c.wantReplays(2)
	c.work()
	c.wantProgress(o.ID, letters.OperationDone, 6, 6, 0)
	c.wantReplays(6)
}

func TestReplicasAtOnceReplayEachDeadLetterOnce(t *testing.T) {
	c := newCRUD(t)
	c.create("a")
	c.create("b")
	dead := append(c.die("a", 10), c.die("b", 10)...)
	first := c.start(letters.BulkRequest{Kind: letters.OperationReplay, Filter: letters.DeadLetterFilter{Job: "a"}, MaxPerSecond: 100})
	second := c.start(letters.BulkRequest{Kind: letters.OperationReplay, MaxPerSecond: 100})
	replicas := c.workAtOnce()
	for _, id := range dead[:3] { // people replay dead letters at the same time
		if _, err := c.For(c.tenant).ReplayDeadLetter(t.Context(), id, ""); err != nil {
			wantError(t, err, ErrState)
		}
	}
	replicas.Wait()
	c.wantReplays(20)
	for _, id := range []uuid.UUID{first.ID, second.ID} {
		if o := c.operation(id); o.State != letters.OperationDone || o.Done+o.Failed != 10 {
			t.Errorf("operation %+v", o)
		}
	}
}

func TestOperationThatCannotBeCarriedOnFailsAndSaysWhy(t *testing.T) {
	c := newCRUD(t)
	c.create("a")
	dead := c.die("a", 1)
	o := c.start(letters.BulkRequest{Kind: letters.OperationReplay})
	c.exec(`ALTER TABLE punctual.runs ADD CONSTRAINT no_more_replays CHECK (trigger <> 'replay')`)
	c.batch()
	if got := c.wantProgress(o.ID, letters.OperationFailed, 1, 0, 0); got.Error == nil {
		t.Error("it does not say why")
	}
	if got := c.letters(letters.DeadLetterFilter{Resolved: open}); !slices.Equal(got, dead) ||
		c.count(`SELECT count(operation) FROM punctual.dead_letters`) != 0 {
		t.Errorf("open are %v", got)
	}
	if c.batch() {
		t.Error("work is left")
	}
}

func TestListOperationsPages(t *testing.T) {
	c := newCRUD(t)
	var want []uuid.UUID
	for range 3 {
		want = append([]uuid.UUID{c.start(letters.BulkRequest{
			Kind: letters.OperationResolve, Filter: letters.DeadLetterFilter{To: new(time.Unix(0, 0))},
		}).ID}, want...)
	}
	var got []uuid.UUID
	f := letters.OperationFilter{State: letters.OperationDone, Page: pg.Page{Limit: 2}}
	for {
		found, next, err := c.Letters.ListOperations(t.Context(), c.tenant, f)
		must(t, err)
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
	if found, _, err := c.Letters.ListOperations(t.Context(), c.tenant, running); err != nil ||
		len(found) != 0 {
		t.Errorf("%d are running (%v)", len(found), err)
	}
}

func TestDeadLettersWorkInEveryExecMode(t *testing.T) {
	eachExecMode(t, func(t *testing.T, c crud) {
		ctx := t.Context()
		job := c.create("a", forbid, labelled("x", "y"))
		dead := c.die("a", 4)
		c.finish(c.claimOnly(c.replay(dead[0])), domain.Bury, domain.ReasonTimeout)
		filter := letters.DeadLetterFilter{
			Job: "a", JobID: &job.ID, Reason: domain.ReasonHTTP5xx,
			From: new(time.Unix(0, 0)), To: new(time.Now().Add(time.Hour)),
			Labels: map[string]string{"x": "y"}, Resolved: open, Page: pg.Page{Limit: 2},
		}
		if found, next, err := c.Letters.ListDeadLetters(ctx, c.tenant, filter); err != nil || len(found) != 2 || next == "" {
			t.Errorf("%d dead letters, %v", len(found), err)
		}
		r := letters.BulkRequest{
			Kind: letters.OperationReplay, Filter: filter, LatestPerJob: true, MaxPerSecond: 5, Note: "n",
		}
		if n, err := c.Letters.CountDeadLetters(ctx, c.tenant, r); err != nil || n != 1 {
			t.Errorf("%d counted, %v", n, err)
		}
		o := c.start(r)
		c.work()
		c.wantProgress(o.ID, letters.OperationDone, 1, 1, 0)
		o = c.start(letters.BulkRequest{Kind: letters.OperationResolve, Filter: filter})
		c.work()
		c.wantProgress(o.ID, letters.OperationDone, 2, 2, 0)
		if _, err := c.Letters.ResolveDeadLetter(ctx, c.tenant, dead[1], ""); err != nil {
			t.Error(err)
		}
		started := c.start(letters.BulkRequest{Kind: letters.OperationReplay})
		if _, err := c.Letters.CancelOperation(ctx, c.tenant, started.ID); err != nil {
			t.Error(err)
		}
		if found, _, err := c.Letters.ListOperations(
			ctx, c.tenant, letters.OperationFilter{},
		); err != nil || len(found) != 3 {
			t.Errorf("%d operations, %v", len(found), err)
		}
	})
}

// claimOnly claims the run, and fails the test if a claim finds any other run.
func (c crud) claimOnly(run runs.Run) domain.Assignment {
	c.t.Helper()
	runs := c.claimAll(uuid.New())
	if len(runs) != 1 || runs[0].RunID != run.ID {
		c.t.Fatalf("claimed %v", runs)
	}
	return runs[0]
}
