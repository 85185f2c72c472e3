package claim_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store"
)

// met is an item that is set aside, when something is done to it.
type met struct {
	Replica
	item    uuid.UUID
	run     uuid.UUID      // uuid.Nil: there is none yet
	outcome domain.Outcome // of the run that is set aside
	mend    func()
}

// again tries what is set aside again, as a replica does.
func (m met) again() {
	m.T.Helper()
	if m.outcome.RunID != uuid.Nil {
		_, err := m.Claims.Finish(Bounded(m.T), []domain.Outcome{m.outcome}, nil)
		if left, is := errors.AsType[*scheduler.LeftOutcomesError](err); is && left.Failing[m.item] == nil {
			m.T.Errorf("left out: %+v", left)
		}
	}
	retryNow(m.Replica)
	for range 2 { // what was set aside, and everything else
		_, err := m.Claims.ClaimDue(Bounded(m.T), m.Asks(10, false))
		m.Must(err)
		m.ClaimReady(10)
	}
	retryNow(m.Replica) // which notices what has ended meanwhile
}

// setASlotAside sets the slot of a job aside: its run cannot be inserted.
func setASlotAside(c Replica) met {
	job, _ := c.DueNow("job")
	mend := c.Before("INSERT", "runs", `RAISE EXCEPTION 'the row is damaged' USING ERRCODE = 'data_corrupted';`)
	for range 2 {
		_, err := c.Claims.ClaimDue(Bounded(c.T), c.Asks(10, false))
		c.Must(err)
	}
	wantAside(c, "slot", job.ID)
	return met{Replica: c, item: job.ID, mend: mend}
}

// setARunAside sets a run aside that waits: it cannot begin.
func setARunAside(c Replica) met {
	c.Create("job", Never)
	run := c.Trigger("job").ID
	mend := c.Before("UPDATE", "runs", `IF NEW.status = 'running' THEN
		RAISE EXCEPTION 'the row is damaged' USING ERRCODE = 'data_corrupted'; END IF;`)
	c.ClaimReady(10)
	wantAside(c, "run", run)
	return met{Replica: c, item: run, run: run, mend: mend}
}

// setAnOutcomeAside sets an outcome aside: that the run has succeeded cannot be written.
func setAnOutcomeAside(c Replica) met {
	c.Create("job", Never)
	a := c.Begun("job")
	mend := c.Before("UPDATE", "runs", `IF NEW.status = 'succeeded' THEN
		RAISE EXCEPTION 'the row is damaged' USING ERRCODE = 'data_corrupted'; END IF;`)
	m := met{Replica: c, item: a.RunID, run: a.RunID, outcome: Succeeded(a), mend: mend}
	leftOf(c, []domain.Outcome{m.outcome})
	wantAside(c, "outcome", a.RunID)
	return m
}

// What is set aside is done as it would have been, whatever happens to its job meanwhile; or it is forgotten, once
// there is nothing left to do. A slot that is due has its run before its job is paused, changed or deleted: as long as
// the run cannot be written, neither is done.
func TestWhatIsSetAsideMeetsAllThatIsDoneToItsJob(t *testing.T) {
	t.Parallel()
	pause := func(m met) error {
		_, err := m.Jobs.PauseJob(m.T.Context(), m.Tenant, "job", "", nil)
		return err
	}
	resume := func(m met) error {
		_, err := m.Jobs.ResumeJob(m.T.Context(), m.Tenant, "job", "")
		return err
	}
	remove := func(m met) error { return m.Jobs.DeleteJob(m.T.Context(), m.Tenant, "job", nil, false) }
	cancel := func(m met) error {
		_, err := m.Runs.CancelRun(m.T.Context(), m.Tenant, m.run)
		return err
	}
	change := func(option Option) func(m met) error {
		return func(m met) error {
			_, err := m.TryEdit("job", option)
			return err
		}
	}
	edit := change(func(d *jobspec.Definition) { d.Description = "another" })
	freeze := func(m met) error {
		m.Freeze(m.Tenant, "")
		return nil
	}
	const stays, byUser = "it stays set aside", "cancelled cancelled_by_user"
	for _, test := range []struct {
		name  string
		aside func(c Replica) met
		does  []func(m met) error
		// What has become of the item while it is still damaged, and then once it is mended: the run's state. damaged is
		// empty if a damaged item does not let it be done.
		damaged, mended string
	}{
		{"a slot/pause", setASlotAside, []func(m met) error{pause}, "", "running"},
		{"a slot/pause and resume", setASlotAside, []func(m met) error{pause, resume}, "", "running"},
		{"a slot/delete", setASlotAside, []func(m met) error{remove}, "", "skipped job_deleted"},
		{"a slot/edit", setASlotAside, []func(m met) error{edit}, "", "running"},
		{"a slot/another schedule", setASlotAside, []func(m met) error{change(Never)}, "", "running"},
		{"a slot/freeze", setASlotAside, []func(m met) error{freeze}, stays, stays},
		{"a run/pause", setARunAside, []func(m met) error{pause}, stays, "running"},
		{"a run/delete", setARunAside, []func(m met) error{remove}, "cancelled job_deleted", "cancelled job_deleted"},
		{"a run/cancel", setARunAside, []func(m met) error{cancel}, byUser, byUser},
		{"a run/edit", setARunAside, []func(m met) error{edit}, stays, "running"},
		{"a run/freeze", setARunAside, []func(m met) error{freeze}, stays, stays},
		{"an outcome/pause", setAnOutcomeAside, []func(m met) error{pause}, stays, "succeeded"},
		{"an outcome/delete", setAnOutcomeAside, []func(m met) error{remove}, stays, "succeeded"},
		{"an outcome/cancel", setAnOutcomeAside, []func(m met) error{cancel}, byUser, byUser},
		{"an outcome/edit", setAnOutcomeAside, []func(m met) error{edit}, stays, "succeeded"},
		{"an outcome/freeze", setAnOutcomeAside, []func(m met) error{freeze}, stays, "succeeded"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := test.aside(NewReplica(t))
			is := func(when, want string) {
				t.Helper()
				got, left := "no run", m.Count(`SELECT count(*) FROM punctual.set_aside`)
				if is := Column[string](m.Fixture, `SELECT concat_ws(' ', status, reason) FROM punctual.runs`); len(is) > 0 {
					got = is[0]
				}
				if want == stays && left != 1 || want != stays && (got != want || left != 0) {
					t.Errorf("%s: %s, and %d items are set aside, want %s", when, got, left, want)
				}
			}
			if test.damaged == "" {
				err := test.does[0](m)
				WantError(t, err, store.ErrState)
				if err != nil && !strings.Contains(err.Error(), "the row is damaged") {
					t.Errorf("the error does not say why: %v", err)
				}
				m.again()
				is("damaged", stays)
			}
			done := func() {
				for _, does := range test.does {
					m.Must(does(m))
				}
			}
			if test.damaged != "" {
				done()
				m.again()
				is("damaged", test.damaged)
			}
			m.mend()
			if test.damaged == "" {
				done()
			}
			m.again()
			is("mended", test.mended)
			if test.mended == stays {
				m.Unfreeze(m.Tenant)
				m.again()
				is("no longer frozen", "running")
			}
			if violations, _ := m.Verified(); len(violations) > 0 && m.run != uuid.Nil { // DueNow's slot is none
				t.Errorf("verify: %q", violations)
			}
		})
	}
}
