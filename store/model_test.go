package store_test

import (
	"errors"
	"maps"
	"slices"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/pg"
)

// The model of a run's life. It says what each event does to the runs of some jobs, without any code of the store or of
// scheduler/domain. Its time is in whole hours: see lived.pass.

// model is the state of jobs and their runs.
type model struct {
	now    int
	frozen string // what is frozen: "tenant", "deployment" or nothing
	limit  modelBound
	jobs   []modelJob
	runs   []*modelRun // by id
	dated  []modelDated
	guards map[modelKey]modelGuard
	made   map[modelCause]uuid.UUID
	events int // that have happened
	fill   *modelFill
}

// modelCause is a run or an event, and the job of which it has made a run, or the step. Only the store knows the id of
// that.
type modelCause struct {
	of  uuid.UUID
	job int // -1, -2, …: a step
}

type modelJob struct {
	*modelDefinition
	versions        []*modelDefinition // the last one is the current one
	base            int                // of its name in modelJobs
	paused, deleted bool
	until           int                     // when the pause ends; 0: when somebody ends it
	fills           map[modelSlot]uuid.UUID // the runs of slots that can be backfilled
	lastFill        uuid.UUID               // the run that has to end before a backfill makes one more, if one at a time
	modelGate
}

// modelRun is a run. It is ready when it may be claimed, or when its target's deadline has come.
type modelRun struct {
	*modelDefinition
	id, blockedBy, replay     uuid.UUID
	trigger                   domain.Trigger
	status                    domain.Status
	reason                    domain.Reason
	job, due, ready           int
	attempt, claims           int  // attempts that count; how often it was claimed: its fence
	replica, started          int  // of the last claim
	accepted, inReady, parked bool // its target works on; parked: at its gate
	atLimit, holds            bool // it waits at the limit, or holds it until it has ended
	bounded, gated            bool // its last attempt held a limit of how many may run, or met a gate
	rerun, dated              bool
	workflow                  uuid.UUID // of a step
	step                      int
	began                     bool // a workflow's steps may run
	told                      int  // the claim that the target has ended in SQL, if no other was ended since
	finished, finishedAs      int  // when it ended, and in which event
	records                   []modelRecord
	letter                    string // "": none
}

// modelRecord is an attempt on record.
type modelRecord struct {
	modelEnd
	claim, number int
	reported      bool // its target said that it failed
}

// modelEnd is how an attempt and its run end. outcome is empty if nothing was sent, or of a success.
type modelEnd struct {
	status  domain.Status
	reason  domain.Reason
	outcome domain.AttemptOutcome
}

// Why an event is refused.
var (
	errBadState, errSuperseded = errors.New("state"), errors.New("superseded")
	errLimit, errToken         = errors.New("limit"), errors.New("run_token")
)

// modelChanges are the events, and what each does.
var modelChanges = map[string]func(modelEvent, *model) error{
	"create": modelEvent.creates, "delete": modelEvent.deletes, "edit": modelEvent.edits, "roll back": modelEvent.edits,
	"pause": modelEvent.pauses, "resume": modelEvent.pauses, "pause many": modelEvent.pausesMany,
	"resume many": modelEvent.pausesMany,
	"emit":        modelEvent.emits, "slot": modelEvent.fires, "trigger": modelEvent.enters, "rerun": modelEvent.enters,
	"date": modelEvent.dates, "move": modelEvent.dates, "undate": modelEvent.dates, "replay": modelEvent.replays,
	"backfill": modelEvent.fills, "operate": modelEvent.operates,
	"claim": modelEvent.claims, "claim ordered": modelEvent.claims, "answer": modelEvent.answers,
	"beat": modelEvent.calls, "complete": modelEvent.calls, "report": modelEvent.calls, "report final": modelEvent.calls,
	"tell success": modelEvent.tells, "tell failure": modelEvent.tells,
	"approve": modelEvent.decides, "reject": modelEvent.decides, "cancel": modelEvent.cancels,
	"listen": modelEvent.listens, "take over": modelEvent.takesOver, "pass": modelEvent.passes,
	"freeze": func(e modelEvent, m *model) error { m.frozen = e.with; return nil },
	"limit":  modelEvent.limits,
}

// transition returns the state after an event, and leaves m as it is. The error says why the event is refused.
func transition(m model, e modelEvent) (after model, err error) {
	m.jobs, m.runs, m.dated = slices.Clone(m.jobs), slices.Clone(m.runs), slices.Clone(m.dated)
	for i, r := range m.runs {
		m.runs[i] = new(*r)
	}
	m.guards, m.made = maps.Clone(m.guards), e.made
	m.events++
	err = modelChanges[e.do](e, &m)
	for _, w := range m.where(func(r *modelRun) bool { return r.began }) {
		m.advance(w)
	}
	m.freeGates()
	m.makeRoom()
	return m, err
}

// run returns a run, or nil.
func (m *model) run(id uuid.UUID) *modelRun {
	return first(m.where(func(r *modelRun) bool { return r.id == id }))
}

// where returns the runs that are so, as they are now.
func (m *model) where(is func(*modelRun) bool) (runs []*modelRun) {
	for _, r := range m.runs {
		if is(r) {
			runs = append(runs, r)
		}
	}
	return runs
}

// first returns the oldest of some runs; nil: there is none.
func first(runs []*modelRun) *modelRun {
	if len(runs) == 0 {
		return nil
	}
	return runs[0]
}

// enter adds a run that waits.
func (m *model) enter(id uuid.UUID, job int, trigger domain.Trigger) *modelRun {
	r := &modelRun{
		modelDefinition: m.jobs[job].modelDefinition, id: id, job: job, trigger: trigger, status: domain.StatusPending,
		due: m.now, inReady: true, ready: m.now, step: -1,
	}
	m.runs = append(m.runs, r)
	slices.SortFunc(m.runs, func(a, b *modelRun) int { return pg.CompareIDs(a.id, b.id) })
	return r
}

// ordered reports whether a run is a part of ordered work, which leaves room for all other work.
func (r *modelRun) ordered() bool {
	return r.trigger == domain.TriggerReplay || r.trigger == domain.TriggerBackfill
}

func (r *modelRun) asked() bool { // to be cancelled
	return r.reason == domain.ReasonCancelled || r.reason == domain.ReasonReplaced
}

// expired reports whether no attempt of a run may start in so many hours.
func (m *model) expired(r *modelRun, in int) bool {
	return r.expires > 0 && r.step < 0 && !r.ordered() && m.now+in >= r.due+r.expires
}

func (r *modelRun) overlaps(blocker uuid.UUID) {
	r.skip(domain.ReasonOverlap)
	r.blockedBy = blocker
}

// skip ends a run that never starts.
func (r *modelRun) skip(reason domain.Reason) { r.stop(domain.StatusSkipped, reason) }

// stop ends a run that waits.
func (r *modelRun) stop(status domain.Status, reason domain.Reason) {
	r.status, r.reason, r.inReady, r.parked, r.atLimit = status, reason, false, false, false
}

// passes lets hours pass. Pauses may end.
func (e modelEvent) passes(m *model) error {
	m.now += e.hours
	for i, j := range m.jobs {
		m.jobs[i].paused = j.paused && (j.until == 0 || m.now < j.until)
	}
	return nil
}

// takesOver ends the attempts of a replica that is lost.
func (e modelEvent) takesOver(m *model) error {
	for _, r := range m.where(func(r *modelRun) bool {
		return r.status == domain.StatusRunning && !r.accepted && r.replica == e.replica
	}) {
		m.lose(r, domain.ReasonLost)
	}
	return nil
}

// enters is a run by hand. It is refused if its claim would skip it now.
func (e modelEvent) enters(m *model) error {
	j := &m.jobs[e.job]
	if of := m.run(e.of); j.deleted || of != nil && (!of.status.Final() || of.step >= 0) {
		return errBadState
	}
	if blocker, _ := m.faces(e.job).overlap(j.policy); blocker != uuid.Nil {
		return errors.New("active " + blocker.String())
	}
	if j.queues() && m.pending(e.job) >= j.most {
		return errLimit
	}
	r := m.enter(e.run, e.job, domain.TriggerManual)
	if r.rerun = e.of != uuid.Nil; r.rerun {
		e.keeps(m, r)
	}
	return nil
}

// replays makes a dead run again.
func (e modelEvent) replays(m *model) error {
	dead := m.run(e.of)
	if again := m.run(dead.replay); dead.letter == "" || m.jobs[dead.job].deleted ||
		dead.letter != "open" && (again == nil || again.status != domain.StatusCancelled) {
		return errBadState
	}
	dead.letter, dead.replay = "resolved", e.run
	m.enter(e.run, dead.job, domain.TriggerReplay)
	return nil
}

// emits is an event, at which jobs run whose filter lets it through.
func (e modelEvent) emits(m *model) error {
	for i, j := range m.jobs {
		if j.onEvent && !j.deleted && (j.value == 0 || j.value == e.key) {
			m.cause(e.run, i, domain.TriggerEvent)
		}
	}
	return nil
}

// cause makes a run of a job because of a run or an event. A job that is paused or deleted skips it.
func (m *model) cause(of uuid.UUID, job int, trigger domain.Trigger) {
	switch r := m.enter(m.made[modelCause{of, job}], job, trigger); {
	case m.jobs[job].deleted:
		r.skip(domain.ReasonJobDeleted)
	case m.jobs[job].paused:
		r.skip(domain.ReasonPaused)
	}
}

// ended triggers other jobs, unless a run was made again.
func (m *model) ended(r *modelRun) {
	if !r.status.Final() || r.status == domain.StatusSkipped || r.rerun || r.step >= 0 ||
		r.trigger == domain.TriggerBackfill {
		return
	}
	for _, l := range r.then {
		if l.when == jobspec.WhenEnded || (l.when == jobspec.WhenFailed) == (r.status == domain.StatusDead) &&
			r.status != domain.StatusCancelled {
			m.cause(r.id, l.job, domain.TriggerChain)
		}
	}
}
