package claim_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/scheduler/domain"
	"punctual/store/aside"
)

// refusals are ways in which the rows of one job can fail. Each is a trigger's body, for a table that the work writes.
var refusals = map[string]string{
	"is refused": `RAISE EXCEPTION 'the row is damaged' USING ERRCODE = 'data_corrupted'`,
	"hangs":      `PERFORM pg_sleep(60)`,
}

// breaks makes each write of a table fail in which a column has a value.
func breaks(c Replica, write, table, column string, value uuid.UUID, how string) (mend func()) {
	c.T.Helper()
	row := "NEW"
	if write == "DELETE" {
		row = "OLD"
	}
	return c.Before(write, table, fmt.Sprintf(`IF %s.%s = '%s' THEN %s; END IF;`, row, column, value, how))
}

// claimUntil claims until as many runs are claimed as wanted.
func claimUntil(c Replica, want int, claim func() (domain.Batch, error)) (runs []domain.Assignment) {
	c.T.Helper()
	ctx := Bounded(c.T)
	for len(runs) < want {
		batch, err := claim()
		if err != nil {
			c.T.Fatalf("%d runs of %d are claimed: %v", len(runs), want, err)
		}
		runs = append(runs, batch.Runs...)
		if ctx.Err() != nil {
			c.T.Fatalf("%d runs of %d are claimed", len(runs), want)
		}
	}
	return runs
}

func wantAside(c Replica, kind string, item uuid.UUID) {
	c.T.Helper()
	got := Column[string](c.Fixture, `SELECT kind || ' ' || item FROM punctual.set_aside`)
	if len(got) != 1 || got[0] != fmt.Sprint(kind, " ", item) {
		c.T.Errorf("set aside is %q, want the %s %s", got, kind, item)
	}
}

func TestASlotThatFailsKeepsNoOtherFromBeingClaimed(t *testing.T) {
	t.Parallel()
	for name, how := range refusals {
		t.Run(name, func(t *testing.T) {
			if name == "hangs" {
				pgtest.Exhaustive(t, "each try waits for seconds")
			}
			c := NewReplica(t)
			c.Many(29, "well", 0)
			victim, _ := c.DueNow("victim")
			mend := breaks(c, "UPDATE", "schedules", "job_id", victim.ID, how)
			claim := func() (domain.Batch, error) { return c.Claims.ClaimDue(t.Context(), c.Asks(100, false)) }
			claimUntil(c, 29, claim)
			for range 20 { // until the item is found, if it was not before the others were claimed
				_, err := claim()
				c.Must(err)
			}
			wantAside(c, "slot", victim.ID)
			mend()
			retryNow(c)
			if runs := claimUntil(c, 1, claim); runs[0].Job.ID != victim.ID {
				t.Errorf("claimed %s", runs[0].Job.Name)
			}
			c.WantCount(0, "items are set aside", `SELECT count(*) FROM punctual.set_aside`)
		})
	}
}

// On a machine on which each statement takes 3 s, nothing is at fault.
func TestASlowMachineSetsNothingAside(t *testing.T) {
	pgtest.Exhaustive(t, "each try waits for seconds")
	t.Parallel()
	for _, n := range []int{1, 2, 30} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			c := NewReplica(t)
			c.Many(n, "well", 0)
			c.Exec(`CREATE FUNCTION punctual.slow() RETURNS trigger LANGUAGE plpgsql AS
					$$ BEGIN PERFORM pg_sleep(3); RETURN NULL; END $$;
				CREATE TRIGGER slow BEFORE UPDATE ON punctual.schedules
					FOR EACH STATEMENT EXECUTE FUNCTION punctual.slow()`)
			ctx, runs, tries := Bounded(t), 0, 0
			for ; runs == 0 && ctx.Err() == nil; tries++ { // a replica tries again after an error, too
				batch, err := c.Claims.ClaimDue(ctx, c.Asks(100, false))
				if runs = len(batch.Runs); err != nil {
					t.Log(err)
				}
			}
			if runs == 0 || tries > 5 {
				t.Errorf("%d runs are claimed after %d tries", runs, tries)
			}
			c.WantCount(0, "items are set aside", `SELECT count(*) FROM punctual.set_aside`)
		})
	}
}

func TestAWaitingRunThatFailsKeepsNoOtherFromBeingClaimed(t *testing.T) {
	t.Parallel()
	for name, how := range refusals {
		t.Run(name, func(t *testing.T) {
			if name == "hangs" {
				pgtest.Exhaustive(t, "each try waits for seconds")
			}
			c := NewReplica(t)
			c.Create("job")
			for range 19 {
				c.Trigger("job")
			}
			victim := c.Trigger("job")
			mend := breaks(c, "UPDATE", "runs", "id", victim.ID, how)
			claim := func() (domain.Batch, error) { return c.Claims.ClaimReady(t.Context(), c.Asks(100, false)) }
			claimUntil(c, 19, claim)
			for range 20 {
				_, err := claim()
				c.Must(err)
			}
			wantAside(c, "run", victim.ID)
			mend()
			retryNow(c)
			if runs := claimUntil(c, 1, claim); runs[0].RunID != victim.ID {
				t.Errorf("claimed %s", runs[0].RunID)
			}
			c.WantCount(0, "items are set aside", `SELECT count(*) FROM punctual.set_aside`)
		})
	}
}

func TestAnOutcomeThatFailsKeepsNoOtherFromBeingWritten(t *testing.T) {
	t.Parallel()
	for name, how := range refusals {
		t.Run(name, func(t *testing.T) {
			if name == "hangs" {
				pgtest.Exhaustive(t, "each try waits for seconds")
			}
			c := NewReplica(t)
			c.Many(30, "well", 0)
			runs := c.Claim(100, false).Runs
			victim := runs[7]
			mend := breaks(c, "UPDATE", "runs", "id", victim.RunID, how)
			outcomes := make([]domain.Outcome, len(runs))
			for i, a := range runs {
				outcomes[i] = Succeeded(a)
			}
			left := leftOf(c, outcomes, victim.Lease.ID)
			if len(left.Failing) != 1 || left.Failing[victim.RunID] == nil || len(left.Leases) != 1 {
				t.Errorf("left out: %+v", left)
			}
			c.WantCount(29, "runs have succeeded", `SELECT count(*) FROM punctual.runs WHERE status = 'succeeded'`)
			c.WantCount(1, "claims are left", `SELECT count(*) FROM punctual.claims`)
			wantAside(c, "outcome", victim.RunID)
			mend()
			if left := leftOf(c, []domain.Outcome{Succeeded(victim)}, victim.Lease.ID); len(left.Failing) > 0 {
				t.Errorf("left out: %+v", left)
			}
			c.WantState(victim.RunID, "succeeded 200 attempt 1 finished")
			c.WantCount(0, "items are set aside", `SELECT count(*) FROM punctual.set_aside`)
			c.NothingLeft()
		})
	}
}

// A job of which one outcome could not be written keeps ending runs. Its next outcomes hold up no batch, and are
// written once one of its outcomes can be.
func TestAJobWhoseOutcomesFailHoldsUpNoOtherTwice(t *testing.T) {
	c := NewReplica(t)
	c.Exec(`CREATE SEQUENCE punctual.tries; GRANT ALL ON SEQUENCE punctual.tries TO PUBLIC`)
	var outcomes []domain.Outcome
	c.Create("hostile", Never)
	c.Create("well", Never)
	for _, job := range []string{"hostile", "well", "hostile", "well", "well", "well"} {
		outcomes = append(outcomes, Succeeded(c.Begun(job)))
	}
	hostile := []domain.Outcome{outcomes[0], outcomes[2]}
	mend := breaks(c, "UPDATE", "runs", "job_id", hostile[0].Job.ID,
		`PERFORM nextval('punctual.tries'); RAISE EXCEPTION 'the row is damaged' USING ERRCODE = 'data_corrupted'`)
	tries := func() int { return c.Count(`SELECT last_value FROM punctual.tries`) }
	leftOf(c, outcomes[:2])
	before := tries()
	if left := leftOf(c, outcomes[2:]); len(left.Failing) != 1 || left.Failing[hostile[1].RunID] == nil {
		t.Errorf("left out: %+v", left)
	}
	if n := tries(); n != before || before == 0 {
		t.Errorf("the outcome of the job was tried %d times together with others, after %d times before", n-before, before)
	}
	c.WantCount(4, "runs have succeeded", `SELECT count(*) FROM punctual.runs WHERE status = 'succeeded'`)
	c.WantCount(2, "items are set aside", `SELECT count(*) FROM punctual.set_aside`)
	mend()
	leftOf(c, hostile[:1])
	if left := leftOf(c, []domain.Outcome{hostile[1], outcomes[5]}); len(left.Failing) > 0 {
		t.Errorf("once one could be written: %+v", left)
	}
	c.WantCount(6, "runs have succeeded", `SELECT count(*) FROM punctual.runs WHERE status = 'succeeded'`)
	c.WantCount(0, "items are set aside", `SELECT count(*) FROM punctual.set_aside`)
}

// An outcome is left out whose run cannot be read. All others are written, and their leases end.
func TestAnOutcomeWhoseRunCannotBeReadKeepsNoOtherFromBeingWritten(t *testing.T) {
	c := NewReplica(t)
	c.Many(10, "well", 0)
	runs := c.Claim(5, false).Runs
	runs = append(runs, c.Claim(5, false).Runs...)
	mend := Harm(c.Fixture, "runs", fmt.Sprintf(`r.id = '%s'`, runs[3].RunID), Harms["cannot be read"])
	var outcomes []domain.Outcome
	for _, run := range runs {
		outcomes = append(outcomes, Succeeded(run))
	}
	left := leftOf(c, outcomes, runs[0].Lease.ID, runs[9].Lease.ID)
	if len(left.Failing) != 1 || left.Failing[runs[3].RunID] == nil ||
		!slices.Equal(left.Leases, []uuid.UUID{runs[0].Lease.ID}) {
		t.Errorf("left out: %+v", left)
	}
	mend()
	c.WantCount(9, "runs have succeeded", `SELECT count(*) FROM punctual.runs WHERE status = 'succeeded'`)
	c.WantCount(1, "claims are left", `SELECT count(*) FROM punctual.claims`)
	if left := leftOf(c, outcomes[3:4], runs[0].Lease.ID); len(left.Failing) > 0 {
		t.Errorf("once it can be read: %+v", left)
	}
	c.WantCount(0, "claims are left", `SELECT count(*) FROM punctual.claims`)
}

// However many outcomes are set aside, one more that fails keeps no other from being written.
func TestOneOutcomeMoreThanCanBeSetAsideKeepsNoOtherFromBeingWritten(t *testing.T) {
	c := NewReplica(t)
	c.Many(3, "well", 0)
	runs := c.Claim(3, false).Runs
	c.Exec(`INSERT INTO punctual.set_aside (kind, item, tenant, reason, retry_at)
		SELECT 'outcome', gen_random_uuid(), $1, 'the row is damaged', now() + interval '1 hour'
		FROM generate_series(1, $2)`, c.Tenant, aside.Most)
	mend := breaks(c, "UPDATE", "runs", "id", runs[1].RunID, refusals["is refused"])
	outcomes := []domain.Outcome{Succeeded(runs[0]), Succeeded(runs[1]), Succeeded(runs[2])}
	if left := leftOf(c, outcomes); len(left.Failing) != 1 || left.Failing[runs[1].RunID] == nil {
		t.Errorf("left out: %+v", left)
	}
	c.WantCount(2, "runs have succeeded", `SELECT count(*) FROM punctual.runs WHERE status = 'succeeded'`)
	mend()
	if left := leftOf(c, outcomes[1:2]); len(left.Failing) > 0 {
		t.Errorf("once it is mended: %+v", left)
	}
}

func TestARunOfALostReplicaThatFailsKeepsNoOtherFromBeingTakenOver(t *testing.T) {
	t.Parallel()
	for name, how := range refusals {
		t.Run(name, func(t *testing.T) {
			if name == "hangs" {
				pgtest.Exhaustive(t, "each try waits for seconds")
			}
			c := NewReplica(t)
			c.Many(10, "well", 0)
			runs := c.Claim(100, false).Runs
			victim := runs[3]
			mend := breaks(c, "UPDATE", "runs", "id", victim.RunID, how)
			c.Lose(c.ReplicaID)
			// A statement that was given up may keep its locks a little longer. Then a later recovery goes on.
			for ctx := Bounded(t); c.Count(`SELECT count(*) FROM punctual.set_aside`) == 0 && ctx.Err() == nil; {
				c.Recover()
			}
			c.WantCount(9, "runs are tried again", `SELECT count(*) FROM punctual.runs WHERE status = 'retrying'`)
			c.WantCount(0, "claims are left", `SELECT count(*) FROM punctual.claims`)
			wantAside(c, "outcome", victim.RunID)
			mend()
			retryNow(c)
			c.WantCount(10, "runs are tried again", `SELECT count(*) FROM punctual.runs WHERE status = 'retrying'`)
			c.WantCount(0, "items are set aside", `SELECT count(*) FROM punctual.set_aside`)
		})
	}
}

// leftOf writes outcomes, ends their lease, and returns what was left out.
func leftOf(c Replica, outcomes []domain.Outcome, leases ...uuid.UUID) (left scheduler.LeftOutcomesError) {
	c.T.Helper()
	_, err := c.Claims.Finish(Bounded(c.T), outcomes, leases)
	if some, is := errors.AsType[*scheduler.LeftOutcomesError](err); is {
		return *some
	}
	c.Must(err)
	return left
}

// retryNow has what is set aside tried again.
func retryNow(c Replica) {
	c.T.Helper()
	c.Exec(`UPDATE punctual.set_aside SET retry_at = now()`)
	_, err := c.Chore(context.WithoutCancel(c.T.Context()), "set-aside")
	c.Must(err)
}
