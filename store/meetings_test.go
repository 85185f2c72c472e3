package store_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/jobs"
	"punctual/store/letters"
	"punctual/store/limits"
	"punctual/store/runs"
)

// meeting is something that waits or runs, when something is done to its job or its tenant.
type meeting struct {
	Replica
	other Replica // claims, too
	job   jobs.Record
	run   uuid.UUID // uuid.Nil: there is none yet
	held  []domain.Assignment
	began time.Time
}

// met is what waits or runs. It is set up before it meets an operation.
type met struct {
	kind  string // of what may become of it
	setUp func(m *meeting)
}

// What may become of the things that waits or run.
const (
	slots  = "a slot"       // no run of it is made yet
	waits  = "a run"        // it waits in ready
	works  = "an attempt"   // it is under way
	flows  = "a workflow"   // it is under way
	orders = "ordered work" // it makes runs one after the other
	dates  = "a dated run"  // it is no run yet
	causes = "an event"     // no run of it is made yet
)

// shared is the limit that some of the jobs name.
const shared = "shared"

// create creates the job of a meeting.
func (m *meeting) create(options ...Option) {
	m.job = m.Create(fmt.Sprintf("job%d", m.Count(`SELECT count(*) FROM punctual.jobs`)),
		append([]Option{Every(24 * time.Hour), Labelled("meets", "something")}, options...)...)
}

// trigger triggers the job, and leaves the run in ready.
func (m *meeting) trigger() uuid.UUID { return m.Trigger(m.job.ID.String()).ID }

// begin triggers the job, and lets its run begin.
func (m *meeting) begin() domain.Assignment {
	m.run = m.trigger()
	return m.One(m.ClaimReady(10))
}

var things = map[string]met{
	"a slot that is due": {slots, func(m *meeting) {
		due := m.began.Add(-2 * time.Second).Truncate(time.Second)
		m.create(func(d *jobspec.Definition) { d.Schedule.StartsAt = jobspec.InstantOf(due) })
		m.Exec(`UPDATE punctual.job_versions SET valid_from = $2 WHERE job_id = $1`, m.job.ID, due.Add(-time.Minute))
		m.SetNext(m.job.ID, due)
	}},
	"a run that was triggered": {waits, func(m *meeting) {
		m.create()
		m.run = m.trigger()
	}},
	"a retry": {waits, func(m *meeting) {
		m.create()
		m.FinishAndRelease(Failed(m.begin()))
	}},
	"a run at its gate": {waits, func(m *meeting) {
		m.create(Overlapping(jobspec.PolicyWait))
		m.held = append(m.held, m.begin())
		m.run = m.trigger()
		m.ClaimReady(10)
	}},
	"a run in a queue": {waits, func(m *meeting) {
		m.create(Overlapping(jobspec.PolicyQueue))
		m.held = append(m.held, m.begin())
		m.trigger()
		m.run = m.trigger()
		m.ClaimReady(10)
	}},
	"a run at a limit": {waits, func(m *meeting) {
		m.create(func(d *jobspec.Definition) { d.Limits = []string{shared} })
		m.held = append(m.held, m.begin())
		m.run = m.trigger()
		m.ClaimReady(10)
	}},
	"a run whose host is down": {waits, func(m *meeting) {
		m.create()
		o := Unsent(m.begin(), domain.Hold)
		now := m.Clock()
		o.RetryIn, o.Held = time.Hour, &domain.Held{By: "breaker example.com:443", Since: now, Until: now.Add(time.Hour)}
		m.FinishAndRelease(o)
	}},
	"a dated run": {dates, func(m *meeting) {
		m.create()
		m.run = m.Date(m.job.ID.String(), jobs.DateRequest{Delay: time.Hour, Key: "key"}).Run
	}},
	"a replay": {waits, func(m *meeting) {
		m.create()
		m.FinishAndRelease(Buried(m.begin()))
		m.run = m.Replay(m.run).ID
	}},
	"a backfill": {orders, func(m *meeting) {
		m.create(func(d *jobspec.Definition) {
			d.Schedule.StartsAt = jobspec.InstantOf(m.began.Add(-60 * time.Hour).Truncate(time.Second))
		})
		m.Backfill(letters.BackfillRequest{
			Job: m.job.ID.String(), From: m.began.Add(-70 * time.Hour), To: m.began.Add(-time.Hour), OneAtATime: true,
		})
		m.NextBatch()
	}},
	"an event": {causes, func(m *meeting) {
		m.create(On("something.happened", ""))
		m.Emit("something.happened", "{}")
	}},
	"an attempt": {works, func(m *meeting) {
		m.create(Overlapping(jobspec.PolicyForbid))
		m.held = append(m.held, m.begin())
	}},
	"long work": {works, func(m *meeting) {
		m.create(ByCallback)
		m.Accept(m.begin())
	}},
	"a workflow": {flows, func(m *meeting) {
		m.create(Steps("a", "b<a", "c<b!"))
		m.AcceptWorkflow(m.begin())
		for _, a := range m.ClaimSteps() {
			m.held = append(m.held, a)
		}
	}},
	"an approval": {flows, func(m *meeting) {
		m.create(Steps("a", "b<a"), func(d *jobspec.Definition) {
			d.Steps[0] = jobspec.Step{Name: "a", Approval: &jobspec.Approval{}}
		})
		m.AcceptWorkflow(m.begin())
		m.AcceptWorkflow(m.ClaimSteps()["a"])
	}},
}

// operation is done to the job of something that waits or runs, or to its tenant.
type operation struct {
	do   func(m *meeting) error
	undo func(m *meeting) // before all comes to its end; nil: it stays
	ends func(kind string) []string
}

// Ends of runs.
const (
	succeeded = "succeeded"
	cancelled = "cancelled cancelled_by_user"
	deleted   = "cancelled job_deleted"
	unmade    = "skipped job_deleted"
	paused    = "skipped paused"
	gone      = "" // there is no run
)

func always(ends ...string) func(string) []string { return func(string) []string { return ends } }

// ofDelete is how runs of a deleted job end. What is under way ends as it would have.
func ofDelete(kind string) []string {
	if kind == works {
		return []string{succeeded}
	}
	if kind == dates || kind == causes || kind == orders {
		return []string{succeeded, deleted, unmade, gone}
	}
	return []string{succeeded, deleted, unmade}
}

// ofPause is how runs end whose job was paused. What comes up meanwhile is skipped.
func ofPause(kind string) []string {
	if kind == slots || kind == causes {
		return []string{succeeded, paused}
	}
	return []string{succeeded}
}

// ofLoss is how runs end whose replica was lost. A step has one attempt.
func ofLoss(kind string) []string {
	if kind == flows {
		return []string{succeeded, "dead lost"}
	}
	return []string{succeeded}
}

func (m *meeting) ref() string { return m.job.ID.String() }

func (m *meeting) limit(most int) error {
	_, _, err := m.Limits.Put(m.T.Context(), m.Tenant, shared, limits.Settings{MaxRunning: &most})
	return err
}

// edit changes the job.
func (m *meeting) edit(change Option) error { return ignore(m.TryEdit(m.ref(), change)) }

// many does something to all jobs with the label of meetings.
func (m *meeting) many(action jobs.Action) error {
	m.StartJobs(Changing(action, jobs.Filter{Labels: map[string]string{"meets": "something"}}))
	for range 3 {
		m.NextBatch()
	}
	return nil
}

func resume(m *meeting) {
	_, err := m.Jobs.ResumeJob(m.T.Context(), m.Tenant, m.ref(), "")
	refused(m, err)
}

var operations = map[string]operation{
	"pause": {func(m *meeting) error {
		_, err := m.Jobs.PauseJob(m.T.Context(), m.Tenant, m.ref(), "", nil)
		return err
	}, resume, ofPause},
	"pause until": {func(m *meeting) error {
		_, err := m.Jobs.PauseJob(m.T.Context(), m.Tenant, m.ref(), "", new(m.Clock().Add(time.Hour)))
		return err
	}, func(m *meeting) {
		m.Exec(`UPDATE punctual.jobs SET paused_until = now() WHERE id = $1 AND state = 'paused'`, m.job.ID)
		m.ResumeDue()
	}, ofPause},
	"pause many": {func(m *meeting) error { return m.many(jobs.PauseMany) }, resume, ofPause},
	"delete": {func(m *meeting) error {
		return m.Jobs.DeleteJob(m.T.Context(), m.Tenant, m.ref(), nil, false)
	}, nil, ofDelete},
	"delete many": {func(m *meeting) error { return m.many(jobs.DeleteMany) }, nil, ofDelete},
	"delete and create again": {func(m *meeting) error {
		err := m.Jobs.DeleteJob(m.T.Context(), m.Tenant, m.ref(), nil, false)
		if err == nil {
			m.Create(m.job.Definition.Name, Never)
		}
		return err
	}, nil, ofDelete},
	"edit of the schedule": {func(m *meeting) error {
		return m.edit(func(d *jobspec.Definition) {
			if d.Schedule.Kind().Recurring() {
				d.Schedule = jobspec.Schedule{Every: jobspec.DurationOf(12 * time.Hour)}
			}
		})
	}, nil, always(succeeded)},
	"edit of the policy": {func(m *meeting) error {
		return m.edit(func(d *jobspec.Definition) {
			if d.ConcurrencyPolicy != jobspec.PolicyQueue {
				d.ConcurrencyPolicy = jobspec.PolicyQueue
			} else {
				d.ConcurrencyPolicy = jobspec.PolicyAllow
			}
		})
	}, nil, always(succeeded)},
	"edit and rollback": {func(m *meeting) error {
		version := m.Get(m.ref()).Version
		if err := m.edit(func(d *jobspec.Definition) { d.Retry.MaxAttempts = 7 }); err != nil {
			return err
		}
		_, err := m.Jobs.RestoreVersion(m.T.Context(), m.Tenant, m.ref(), version, nil,
			func(jobspec.Definition) error { return nil })
		return err
	}, nil, always(succeeded)},
	"freeze": {func(m *meeting) error {
		_, err := m.Freezes.Freeze(m.T.Context(), m.Tenant, "")
		return err
	}, func(m *meeting) { m.Unfreeze(m.Tenant) }, always(succeeded)},
	"cancel": {func(m *meeting) error {
		if m.run == uuid.Nil {
			return nil
		}
		_, err := m.Runs.CancelRun(m.T.Context(), m.Tenant, m.run)
		return err
	}, nil, always(succeeded, cancelled, gone)},
	"a lower limit": {func(m *meeting) error {
		m.Must(m.limit(3))
		return m.limit(1)
	}, nil, always(succeeded)},
	"a higher limit": {func(m *meeting) error { return m.limit(5) }, func(m *meeting) { m.Must(m.limit(1)) }, always(succeeded)},
	"loss of a replica": {func(m *meeting) error {
		m.Lose(m.ReplicaID)
		m.Recover()
		for i := range m.held { // its outcomes come too late
			m.Must(ignore(m.Claims.Finish(m.T.Context(), []domain.Outcome{Succeeded(m.held[i])}, nil)))
		}
		m.held = nil
		return nil
	}, func(m *meeting) { m.Replica = AsReplica(m.Fixture) }, ofLoss},
	"another trigger": {func(m *meeting) error {
		_, err := m.For(m.Tenant).TriggerJob(m.T.Context(), m.ref(), jobs.TriggerRequest{})
		return err
	}, nil, always(succeeded)},
	"a rerun": {func(m *meeting) error {
		if m.run == uuid.Nil {
			return nil
		}
		_, err := m.For(m.Tenant).RerunRun(m.T.Context(), m.run, jobs.RerunRequest{})
		return err
	}, nil, always(succeeded)},
}

func ignore[T any](_ T, err error) error { return err }

// refused fails the test if an operation failed in another way than with a refusal that says why.
func refused(m *meeting, err error) {
	m.T.Helper()
	active, isActive := errors.AsType[*jobs.ActiveRunError](err)
	refusal, isRefusal := errors.AsType[*jobspec.Refusal](err)
	switch {
	case err == nil, errors.Is(err, store.ErrState), errors.Is(err, store.ErrNotFound):
	case isActive && active.Run != uuid.Nil, isRefusal && refusal.Reason != "":
	default:
		m.T.Errorf("an error in place of a refusal: %v", err)
	}
}

// work claims all that a replica can, and ends it with success.
func (m *meeting) work(c Replica) {
	taken := c.Claim(100, false).Runs
	for _, kind := range []domain.Work{domain.WorkReady, domain.WorkOrdered} {
		taken = append(taken, c.ClaimWaiting(kind, 100).Runs...)
	}
	for _, a := range taken {
		m.end(a)
	}
}

// end ends an attempt with success. A workflow begins, and an approval waits.
func (m *meeting) end(a domain.Assignment) {
	o := Succeeded(a)
	if a.Job.SendsNothing() {
		o = Ended(a, domain.Await)
		o.RetryIn = a.Job.MaxDuration.Value()
	}
	var leases []uuid.UUID
	if a.Lease.Remaining--; a.Lease.Remaining <= 0 {
		leases = append(leases, a.Lease.ID)
	}
	_, err := m.Claims.Finish(m.T.Context(), []domain.Outcome{o}, leases)
	if _, is := errors.AsType[*scheduler.LeftOutcomesError](err); !is {
		Must(m.T, err)
	}
}

// explained fails the test if what waits, although it is due, does not say for what.
func (m *meeting) explained() {
	m.T.Helper()
	m.Explained(m.ref(), m.Clock())
	for _, id := range Column[uuid.UUID](m.Fixture, `
		SELECT y.run_id FROM punctual.ready y, punctual.runs_of(ARRAY[y.run_id]) r
		WHERE y.job_id = $1 AND r.status <> 'running'
		  AND y.waits IN ('gate', 'host', 'limit')`, m.job.ID) {
		if waits, err := m.Runs.RunWaitsFor(m.T.Context(), m.Tenant, id); err != nil || waits == nil {
			m.T.Errorf("run %s does not say what it waits for (%v):\n%s", id, err, m.shown())
		}
	}
}

// rest lets all come to its end.
func (m *meeting) rest() {
	m.T.Helper()
	for _, a := range m.held {
		m.end(a)
	}
	const unfinished = `SELECT (SELECT count(*) FROM punctual.ready) + (SELECT count(*) FROM punctual.dated)
		+ (SELECT count(*) FROM punctual.workflows) + (SELECT count(*) FROM punctual.claims)
		+ (SELECT count(*) FROM punctual.operations WHERE state = 'running')`
	for range 30 {
		m.work(m.Replica)
		m.work(m.other)
		m.FanOut()
		m.FitDated()
		m.NextBatch()
		m.GoOn()
		m.Must(ignore(m.Claims.ReleaseLimits(m.T.Context())))
		m.Must(ignore(m.Claims.FreeGates(m.T.Context())))
		for _, a := range Column[uuid.UUID](m.Fixture, `SELECT run_id FROM punctual.ready WHERE waits = 'person'`) {
			_, err := m.Runs.Decide(m.T.Context(), m.Tenant, a, true, "")
			refused(m, err)
		}
		m.complete()
		if m.Count(unfinished) == 0 {
			return
		}
		// What waits for a gate or a limit is to be due by itself.
		m.Exec(`UPDATE punctual.ready SET due_at = now(), until = now() + interval '1 h'
			WHERE waits IN ('turn', 'host')`)
		m.Exec(`UPDATE punctual.dated SET due_at = now()`)
	}
	m.T.Errorf("something waits for ever:\n%s", m.shown())
}

// shown are the runs of the job that have not ended, and its gate, for people.
func (m *meeting) shown() string {
	return strings.Join(Column[string](m.Fixture, `
		SELECT concat_ws(' ', r.id, r.status, r.reason, 'attempt ' || r.attempt, y::text)
		FROM punctual.runs r LEFT JOIN punctual.ready y ON y.run_id = r.id
		WHERE r.job_id = $1 AND (r.finished_at IS NULL OR y.run_id IS NOT NULL)
		UNION ALL SELECT e::text FROM punctual.exclusive e WHERE e.job_id = $1`, m.job.ID), "\n")
}

// complete lets targets that work on report success.
func (m *meeting) complete() {
	for _, id := range Column[uuid.UUID](m.Fixture, `
		SELECT r.id FROM punctual.runs r JOIN punctual.ready y ON y.run_id = r.id
		WHERE r.status = 'running' AND r.accepted_at IS NOT NULL AND y.waits <> 'person'
		  AND NOT EXISTS (SELECT FROM punctual.workflows w WHERE w.run_id = r.id)`) {
		key, err := m.Claims.ReadTokenKey(m.T.Context(), m.DB.Callers.Reader(m.Tenant))
		m.Must(err)
		fence := Column[int64](m.Fixture, `SELECT fence FROM punctual.runs WHERE id = $1`, id)[0]
		_, err = m.Runs.CompleteRun(m.T.Context(), id, domain.RunToken(key, id, fence), nil)
		if _, late := errors.AsType[*runs.SupersededError](err); !late {
			m.Must(err)
		}
	}
}

// meets lets an operation meet something that waits or runs, while two replicas claim.
func (m *meeting) meets(of operation, thing met) {
	thing.setUp(m)
	var claimers sync.WaitGroup
	done, stop := context.WithCancel(m.T.Context())
	for _, c := range []Replica{m.Replica, m.other} {
		claimers.Go(func() {
			for ok := true; ok; ok = done.Err() == nil {
				m.work(c)
			}
		})
	}
	err := of.do(m)
	stop()
	claimers.Wait()
	refused(m, err)
	m.explained()
	if of.undo != nil {
		of.undo(m)
	}
	m.rest()
	m.NothingLeft()
	found := Column[string](m.Fixture, `
		SELECT DISTINCT concat_ws(' ', status, reason) FROM punctual.runs
		WHERE job_id = $1 AND step IS NULL AND (id = $2 OR $2 = '00000000-0000-0000-0000-000000000000')`, m.job.ID, m.run)
	if len(found) == 0 {
		found = []string{gone}
	}
	for _, end := range found {
		if ends := of.ends(thing.kind); !slices.Contains(ends, end) {
			m.T.Errorf("a run has ended as %q, want one of %q", end, ends)
		}
	}
	m.Clean()
}

// 15 things that wait or run each meet 16 operations while two replicas claim. All end as they should.
//
// From a due slot to an approval, and operations on their job or tenant. No answer is a fault, explain says why each
// waits, verify finds nothing, and no row is left.
//
//prove:claims
func TestWhatWaitsOrRunsMeetsWhatIsDoneToIt(t *testing.T) {
	t.Parallel()
	for i, doing := range slices.Sorted(maps.Keys(operations)) {
		t.Run(doing, func(t *testing.T) {
			c := NewReplica(t)
			for k, waiting := range slices.Sorted(maps.Keys(things)) {
				if testing.Short() && (i+k)%3 > 0 { // `make prove` has all
					continue
				}
				t.Run(waiting, func(t *testing.T) {
					c.T = t
					m := &meeting{Replica: AsReplica(c.Fixture), other: AsReplica(c.Fixture), began: c.Clock()}
					c.Exec(`DELETE FROM punctual.limits`)
					m.Must(m.limit(1))
					m.meets(operations[doing], things[waiting])
				})
			}
		})
	}
}
