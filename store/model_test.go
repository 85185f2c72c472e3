package store_test

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/pg"
)

// The model of a run's life. It says what each event does to the runs of some jobs, without any code of the store or of
// scheduler/domain. Its time is in whole hours: see lived.pass.

// model is the state of jobs and their runs.
type model struct {
	now    int
	frozen string // what is frozen: "tenant", "deployment" or nothing
	limit  int    // max_running of the limit that some jobs share; 0: none
	jobs   []modelJob
	runs   []*modelRun  // by id
	dated  []modelDated // by id
	guards map[modelKey]modelGuard
	made   map[modelCause]uuid.UUID
	events int // that have happened
	fill   *modelFill
}

// modelKey is a key of a job's dated runs.
type modelKey struct{ job, key int }

// modelGuard is the number of a dated run that has left. It guards its key for a day.
type modelGuard struct{ seq, left int }

// modelCause is a run or an event, and the job of which it has made a run, or the step. Only the store knows the id of
// that.
type modelCause struct {
	of  uuid.UUID
	job int // -1, -2, …: a step
}

// modelStep is a step of a workflow.
type modelStep struct {
	on       []int // the steps that it depends on
	cleansUp bool  // when: ended
	approval bool
}

// modelLink is another job that the end of a run triggers.
type modelLink struct {
	job  int
	when domain.LinkWhen
}

type modelJob struct {
	policy               domain.ConcurrencyPolicy
	maxAttempts, expires int // expires: expires_after, or 0
	most                 int // max_pending_runs of the policy queue
	tolerance            int // of a job that skips what it missed
	async, once, limited bool
	onEvent              bool // it runs at events, in place of slots
	value                int  // of the events' field that its filter lets through; 0: all
	then                 []modelLink
	steps                []modelStep
	base                 int // of its name in modelJobs
	paused, deleted      bool
	until                int         // when the pause ends; 0: when somebody ends it
	fills                []uuid.UUID // the runs of the slots that can be backfilled; uuid.Nil: there is none
	missed               bool        // its slots were missed, and go one at a time, although other runs may overlap
	active, waiting      uuid.UUID   // the gate
}

// modelRun is a run. It is ready when it may be claimed, or when its target's deadline has come.
type modelRun struct {
	id, blockedBy, replay     uuid.UUID
	trigger                   domain.Trigger
	status                    domain.Status
	reason                    domain.Reason
	job, due, ready           int
	attempt, claims           int  // attempts that count; how often it was claimed: its fence
	replica, started          int  // of the last claim
	accepted, inReady, parked bool // its target works on; parked: at its gate
	atLimit, holds            bool // it waits at the limit, or holds it until it has ended
	bounded                   bool // its last attempt held a limit of how many may run
	rerun, dated              bool
	workflow                  uuid.UUID // of a step
	step                      int
	began                     bool // a workflow's steps may run
	finished, finishedAs      int  // when it ended, and in which event
	records                   []modelRecord
	letter                    string // "": none
}

// modelDated is a run that a caller wants at an instant, before it is a run.
type modelDated struct {
	id           uuid.UUID
	job, key     int
	due, created int
	latest, seq  int // 0: none
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

// transition returns the state after an event, and leaves m as it is. The error says why the event is refused.
func transition(m model, e modelEvent) (after model, err error) {
	m.jobs, m.runs, m.dated = slices.Clone(m.jobs), slices.Clone(m.runs), slices.Clone(m.dated)
	for i, r := range m.runs {
		m.runs[i] = new(*r)
	}
	m.guards, m.made = maps.Clone(m.guards), e.made
	m.events++
	switch r := m.run(e.run); e.do {
	case "create":
		m.create(m.jobs[e.job].base)
	case "delete":
		err = e.deletes(&m)
	case "emit":
		for i, j := range m.jobs {
			if j.onEvent && !j.deleted && (j.value == 0 || j.value == e.key) {
				m.cause(e.run, i, domain.TriggerEvent)
			}
		}
	case "pass":
		m.now += e.hours
		for i, j := range m.jobs {
			m.jobs[i].paused = j.paused && (j.until == 0 || m.now < j.until)
		}
	case "freeze":
		m.frozen = e.with
	case "pause", "resume":
		if m.jobs[e.job].deleted {
			return m, errBadState
		}
		m.jobs[e.job].paused, m.jobs[e.job].until = e.do == "pause", 0
		if e.hours > 0 {
			m.jobs[e.job].until = m.now + e.hours
		}
	case "backfill":
		err = e.fills(&m)
	case "operate":
		e.operates(&m)
	case "slot":
		e.fires(&m)
	case "limit":
		m.limit = e.hours
	case "trigger", "rerun":
		err = e.enters(&m)
	case "date", "move", "undate":
		err = e.dates(&m)
	case "replay":
		dead := m.run(e.of)
		if again := m.run(dead.replay); dead.letter == "" || dead.letter != "open" &&
			(again == nil || again.status != domain.StatusCancelled) || m.jobs[dead.job].deleted {
			return m, errBadState
		}
		dead.letter, dead.replay = "resolved", e.run
		m.enter(e.run, dead.job, domain.TriggerReplay)
	case "claim", "claim ordered":
		e.claims(&m)
	case "answer":
		err = e.answers(&m, r)
	case "approve", "reject":
		err = e.decides(&m, r)
	case "beat", "complete", "report", "report final":
		err = e.calls(&m, r)
	case "listen":
		e.listens(&m)
	case "take over":
		for _, r := range slices.Clone(m.runs) {
			if r.status == domain.StatusRunning && !r.accepted && r.replica == e.replica {
				m.lose(r, domain.ReasonLost)
			}
		}
	case "cancel":
		if r.status.Final() && r.status != domain.StatusCancelled {
			return m, errBadState
		}
		m.cancel(r.job, domain.ReasonCancelled, e.run)
	}
	for _, w := range slices.Clone(m.runs) {
		m.advance(w)
	}
	m.makeRoom()
	return m, err
}

// makeRoom sets due what the limit has room for.
func (m *model) makeRoom() {
	for _, r := range m.runs {
		if r.atLimit && (m.limit == 0 || m.holders()+m.ahead(r) < m.limit) {
			r.ready = min(r.ready, m.now)
		}
	}
}

// run returns a run, or nil.
func (m *model) run(id uuid.UUID) *modelRun {
	if at := slices.IndexFunc(m.runs, func(r *modelRun) bool { return r.id == id }); at >= 0 {
		return m.runs[at]
	}
	return nil
}

// enter adds a run that waits.
func (m *model) enter(id uuid.UUID, job int, trigger domain.Trigger) *modelRun {
	m.runs = append(m.runs, &modelRun{
		id: id, job: job, trigger: trigger, status: domain.StatusPending, due: m.now, inReady: true, ready: m.now, step: -1,
	})
	slices.SortFunc(m.runs, func(a, b *modelRun) int { return pg.CompareIDs(a.id, b.id) })
	return m.run(id)
}

func (j *modelJob) gated() bool  { return j.policy != domain.PolicyAllow }
func (j *modelJob) queues() bool { return j.policy == domain.PolicyQueue }

// take gives the free gate to a run.
func (j *modelJob) take(run uuid.UUID) {
	if j.active = run; j.waiting == run {
		j.waiting = uuid.Nil
	}
}

// ordered reports whether a run is a part of ordered work, which leaves room for all other work.
func (r *modelRun) ordered() bool {
	return r.trigger == domain.TriggerReplay || r.trigger == domain.TriggerBackfill
}

func (r *modelRun) asked() bool { // to be cancelled
	return r.reason == domain.ReasonCancelled || r.reason == domain.ReasonReplaced
}

// expired reports whether no attempt may start in so many hours.
func (m *model) expired(r *modelRun, in int) bool {
	after := m.jobs[r.job].expires
	return after > 0 && r.step < 0 && !r.ordered() && m.now+in >= r.due+after
}

// facing returns a job's gate as another run of the job meets it: without a run that has expired while it waited there.
func (m *model) facing(job int) (j modelJob, expired uuid.UUID) {
	if j = m.jobs[job]; j.waiting != uuid.Nil && m.expired(m.run(j.waiting), 0) {
		j.waiting, expired = uuid.Nil, j.waiting
	}
	return j, expired
}

// overlap decides about one more run.
func (j modelJob) overlap() (blocker uuid.UUID, replaces []uuid.UUID) {
	switch {
	case j.policy == domain.PolicyForbid && j.active != uuid.Nil:
		blocker = j.active
	case j.policy == domain.PolicyForbid, j.policy == domain.PolicyWait:
		blocker = j.waiting
	case j.policy == domain.PolicyReplace:
		replaces = []uuid.UUID{j.active, j.waiting}
	}
	return blocker, slices.DeleteFunc(replaces, func(id uuid.UUID) bool { return id == uuid.Nil })
}

// expire ends a run that has expired while it waited at its gate.
func (m *model) expire(id uuid.UUID) {
	if r := m.run(id); r != nil && r.status == domain.StatusPending {
		r.end(domain.StatusSkipped, domain.ReasonExpired)
		m.jobs[r.job].waiting = uuid.Nil
	}
}

// fires is a slot that becomes due and is claimed.
func (e modelEvent) fires(m *model) {
	j := &m.jobs[e.job]
	if m.frozen != "" || j.paused || j.deleted || j.onEvent {
		return
	}
	wasActive := j.active != uuid.Nil
	facing, expired := m.facing(e.job)
	blocker, replaces := facing.overlap()
	m.expire(expired)
	if blocker != uuid.Nil {
		m.enter(e.of, e.job, domain.TriggerSchedule).skip(blocker)
		return
	}
	if j.queues() && m.pending(e.job) >= j.most {
		m.enter(e.of, e.job, domain.TriggerSchedule).end(domain.StatusSkipped, domain.ReasonLimit)
		return
	}
	m.cancel(e.job, domain.ReasonReplaced, replaces...)
	trigger := domain.TriggerSchedule
	if j.missed {
		trigger = domain.TriggerCatchup
	}
	switch r := m.enter(e.run, e.job, trigger); {
	case j.queues() || !j.gated() && m.limited(r) || j.missed:
	case wasActive || m.limited(r):
		j.waiting = r.id
	default:
		m.start(r, e.replica)
	}
}

// pending is how many runs of a job wait, without the one that has its gate.
func (m *model) pending(job int) (n int) {
	for _, r := range m.runs {
		if r.job == job && r.step < 0 && r.inReady && r.id != m.jobs[job].active {
			n++
		}
	}
	return n
}

func (r *modelRun) skip(blocker uuid.UUID) {
	r.end(domain.StatusSkipped, domain.ReasonOverlap)
	r.blockedBy = blocker
}

// end ends a run that waits.
func (r *modelRun) end(status domain.Status, reason domain.Reason) {
	r.status, r.reason, r.inReady, r.parked, r.atLimit = status, reason, false, false, false
}

// enters is a run by hand. It is refused if its claim would skip it now.
func (e modelEvent) enters(m *model) error {
	if of := m.run(e.of); of != nil && (!of.status.Final() || of.step >= 0) {
		return errBadState
	}
	j, expired := m.facing(e.job)
	if j.deleted {
		return errBadState
	}
	for _, r := range m.runs {
		switch waits := r.inReady && !r.accepted && (j.policy == domain.PolicyForbid || m.undecided(r) ||
			j.policy == domain.PolicyWait && r.dated && r.claims == 0); {
		case r.job != e.job || !waits || r.id == expired || r.id == j.waiting || r.id == j.active:
		case j.active == uuid.Nil:
			j.active = r.id
		case j.waiting == uuid.Nil:
			j.waiting = r.id
		}
	}
	if blocker, _ := j.overlap(); blocker != uuid.Nil {
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

// undecided reports whether a run has not come to the gate of its job. Ordered work waits there until the gate is free,
// as does a dated run that replaces nothing.
func (m *model) undecided(r *modelRun) bool {
	j := &m.jobs[r.job]
	return j.gated() && r.step < 0 && !j.queues() && r.claims == 0 && !r.ordered() &&
		r.id != j.active && r.id != j.waiting && (!r.dated || j.policy == domain.PolicyReplace)
}

// until is how long replacements may put off a run whose key was first written at an hour; 0: for ever.
func (e modelEvent) until(created int) int {
	if e.latest == 0 {
		return 0
	}
	return created + e.latest
}

// deletes ends a job: what waits is cancelled, and what runs ends with its attempt.
func (e modelEvent) deletes(m *model) error {
	j := &m.jobs[e.job]
	if j.deleted {
		return errBadState
	}
	j.deleted, j.paused, j.until = true, false, 0
	var waiting []uuid.UUID
	for _, r := range m.runs {
		if r.job == e.job && r.inReady && !r.accepted {
			waiting = append(waiting, r.id)
		}
	}
	m.cancel(e.job, domain.ReasonJobDeleted, waiting...)
	before := len(m.dated)
	if m.dated = slices.DeleteFunc(m.dated, func(d modelDated) bool { return d.job == e.job }); len(m.dated) < before {
		m.enter(e.of, e.job, domain.TriggerManual).end(domain.StatusSkipped, domain.ReasonJobDeleted)
	}
	return nil
}

// current returns the newest job of a name.
func (m *model) current(base int) (job int) {
	for i, j := range m.jobs {
		if j.base == base {
			job = i
		}
	}
	return job
}

// create adds a job. Its links are to jobs that there are now.
func (m *model) create(base int) {
	j := modelJobs[base]
	j.base, j.then, j.fills = base, nil, make([]uuid.UUID, modelFills)
	for _, l := range modelJobs[base].then {
		if l.job = m.current(l.job); !m.jobs[l.job].deleted {
			j.then = append(j.then, l)
		}
	}
	m.jobs = append(m.jobs, j)
}

// cause makes a run of a job because of a run or an event. A job that is paused or deleted skips it.
func (m *model) cause(of uuid.UUID, job int, trigger domain.Trigger) {
	switch r := m.enter(m.made[modelCause{of, job}], job, trigger); {
	case m.jobs[job].deleted:
		r.end(domain.StatusSkipped, domain.ReasonJobDeleted)
	case m.jobs[job].paused:
		r.end(domain.StatusSkipped, domain.ReasonPaused)
	}
}

// ended triggers other jobs, unless a run was made again.
func (m *model) ended(id uuid.UUID) {
	r := m.run(id)
	if !r.status.Final() || r.status == domain.StatusSkipped || r.rerun || r.step >= 0 ||
		r.trigger == domain.TriggerBackfill {
		return
	}
	for _, l := range m.jobs[r.job].then {
		if l.when == domain.WhenEnded || (l.when == domain.WhenFailed) == (r.status == domain.StatusDead) &&
			r.status != domain.StatusCancelled {
			m.cause(id, l.job, domain.TriggerChain)
		}
	}
}

// dates writes, moves or removes a dated run. Of two with a number the higher one stays.
func (e modelEvent) dates(m *model) error {
	at := slices.IndexFunc(m.dated, func(d modelDated) bool { return d.job == e.job && d.key == e.key })
	switch {
	case m.jobs[e.job].deleted:
		return errBadState
	case e.do == "undate" && at < 0, e.do == "move" && at < 0:
		return errBadState
	case e.do == "undate":
		m.leave(m.dated[at])
		return nil
	case e.with == "replace" && e.seq > 0 && e.seq <= m.guard(e.job, e.key):
	case at < 0:
		m.dated = append(m.dated, modelDated{
			id: e.run, job: e.job, key: e.key, due: m.now + e.hours, created: m.now, latest: e.until(m.now), seq: e.seq,
		})
	case e.with == "keep", m.dated[at].seq > 0 && e.seq > 0 && e.seq <= m.dated[at].seq:
	default:
		d := &m.dated[at]
		d.id, d.due, d.seq = e.run, m.now+e.hours, cmp.Or(e.seq, d.seq)
		if d.latest = cmp.Or(d.latest, e.until(d.created)); d.latest > 0 {
			d.due = min(d.due, d.latest)
		}
	}
	slices.SortFunc(m.dated, func(a, b modelDated) int { return pg.CompareIDs(a.id, b.id) })
	return nil
}

// leave removes a dated run. Its number guards the key from now on, unless a higher one does.
func (m *model) leave(d modelDated) {
	m.dated = slices.DeleteFunc(m.dated, func(o modelDated) bool { return o.id == d.id })
	if d.seq > m.guard(d.job, d.key) {
		m.guards[modelKey{d.job, d.key}] = modelGuard{d.seq, m.now}
	}
}

// guard is the number that a replacement of a key needs to exceed; 0: none.
func (m *model) guard(job, key int) int {
	if g := m.guards[modelKey{job, key}]; m.now < g.left+24 {
		return g.seq
	}
	return 0
}

// arrive makes runs of the dated ones whose time has come. One that is too late for its job is skipped.
func (m *model) arrive() (come map[uuid.UUID]bool) {
	come = map[uuid.UUID]bool{}
	for _, d := range slices.Clone(m.dated) {
		j := &m.jobs[d.job]
		if d.due > m.now || j.paused || m.frozen != "" {
			continue
		}
		m.leave(d)
		r := m.enter(d.id, d.job, domain.TriggerManual)
		if r.due, r.ready, r.dated = d.due, d.due, true; j.tolerance > 0 && m.now >= d.due+j.tolerance {
			r.end(domain.StatusSkipped, domain.ReasonMissed)
			continue
		}
		come[d.id] = true
	}
	return come
}

// modelLine is how the runs of a job that go in order stand when a claim begins: of a queue all, else those of missed
// slots.
type modelLine struct {
	first  uuid.UUID // the oldest that waits
	length int       // how many wait at the gate
}

// lines are the lines of all jobs, without the runs that come to them by this claim.
func (m *model) lines(come map[uuid.UUID]bool) []modelLine {
	lines := make([]modelLine, len(m.jobs))
	for _, r := range m.runs {
		inLine := m.jobs[r.job].queues() || r.trigger == domain.TriggerCatchup && r.claims == 0
		if l := &lines[r.job]; inLine && r.step < 0 && r.inReady && !r.accepted && !come[r.id] {
			if l.first == uuid.Nil {
				l.first = r.id
			}
			if r.parked {
				l.length++
			}
		}
	}
	return lines
}

// claims is a claim of what is ready, by a replica. Of runs that replace each other the newest comes first. A gate
// counts as held as long as the claim lasts, although the run that held it may be ended by the claim. So does a limit.
func (e modelEvent) claims(m *model) {
	var come, replace []uuid.UUID
	var dated map[uuid.UUID]bool
	if e.do == "claim" {
		dated = m.arrive()
	}
	undecided, gates, expired := map[uuid.UUID]bool{}, slices.Clone(m.jobs), make([]uuid.UUID, len(m.jobs))
	lines, holders := m.lines(dated), m.holders()
	for i := range gates {
		gates[i], expired[i] = m.facing(i)
	}
	for _, r := range m.runs {
		if m.frozen != "" || !r.inReady || r.accepted || r.ready > m.now ||
			(e.do == "claim ordered") != r.ordered() {
			continue
		}
		if undecided[r.id] = m.undecided(r); undecided[r.id] && m.jobs[r.job].policy == domain.PolicyReplace {
			replace = slices.Insert(replace, 0, r.id)
		} else {
			come = append(come, r.id)
		}
	}
	for _, id := range append(replace, come...) {
		r := m.run(id)
		switch g, l := &gates[r.job], &lines[r.job]; {
		case !r.inReady || undecided[id] && !m.comes(r, g, expired[r.job]):
		case m.passesGate(r) && g.active != id && (g.active != uuid.Nil || l.first != uuid.Nil &&
			pg.CompareIDs(l.first, id) < 0):
			m.park(r, l)
		case m.limited(r) && !r.holds && m.limit > 0 && holders+m.ahead(r) >= m.limit:
			if r.atLimit, r.parked, r.ready = true, false, m.now+modelParked; undecided[id] {
				g.waiting, m.jobs[r.job].waiting = id, id
			}
		default:
			if r.bounded = m.limited(r) && m.limit > 0; m.limited(r) && !r.holds {
				r.holds = true
				holders++
			}
			if m.passesGate(r) {
				g.take(id)
			}
			m.start(r, e.replica)
		}
	}
}

// holders is how many runs hold the limit.
func (m *model) holders() (n int) {
	for _, r := range m.runs {
		if r.holds && !r.status.Final() {
			n++
		}
	}
	return n
}

// ahead is how many runs wait at the limit before another one.
func (m *model) ahead(of *modelRun) (n int) {
	for _, r := range m.runs {
		if r.atLimit && r.id != of.id && (of.ordered() && !r.ordered() || of.ordered() == r.ordered() &&
			pg.CompareIDs(r.id, of.id) < 0) {
			n++
		}
	}
	return n
}

// park leaves a run at its gate. In a queue only so many may wait there.
func (m *model) park(r *modelRun, l *modelLine) {
	if j := &m.jobs[r.job]; j.queues() && !r.parked {
		if l.length >= j.most && r.claims == 0 && !r.ordered() {
			r.end(domain.StatusSkipped, domain.ReasonLimit)
			return
		}
		l.length++
	}
	r.parked, r.atLimit, r.ready = true, false, m.now+modelParked
}

// passesGate reports whether a run passes the gate of its job.
func (m *model) passesGate(r *modelRun) bool {
	return r.step < 0 && m.jobs[r.job].gated() || r.trigger == domain.TriggerCatchup
}

// limited reports whether a run holds the limit of its job while it works. Of a workflow its steps do.
func (m *model) limited(r *modelRun) bool {
	j := &m.jobs[r.job]
	return j.limited && !m.sendsNothing(r)
}

// comes is a run that comes to the gate of its job. It reports whether the run may start.
func (m *model) comes(r *modelRun, g *modelJob, expired uuid.UUID) bool {
	blocker, replaces := g.overlap()
	if slices.ContainsFunc(replaces, func(of uuid.UUID) bool { return pg.CompareIDs(of, r.id) > 0 }) {
		m.cancel(r.job, domain.ReasonReplaced, r.id)
		return false
	}
	m.expire(expired)
	if blocker != uuid.Nil {
		r.skip(blocker)
		return false
	}
	m.cancel(r.job, domain.ReasonReplaced, replaces...)
	if g.active == uuid.Nil {
		g.waiting = uuid.Nil
		return true
	}
	g.waiting, m.jobs[r.job].waiting = r.id, r.id
	if len(replaces) == 0 { // else the gate may be free at once
		m.park(r, nil)
	}
	return false
}

// start begins an attempt.
func (m *model) start(r *modelRun, replica int) {
	if m.passesGate(r) {
		m.jobs[r.job].take(r.id)
	}
	r.status, r.replica, r.started = domain.StatusRunning, replica, m.now
	r.inReady, r.parked, r.atLimit = false, false, false
	r.attempt++
	r.claims++
}

// answers is the outcome of an attempt, as its replica writes it.
func (e modelEvent) answers(m *model, r *modelRun) error {
	accepts := e.with == "202" && m.jobs[r.job].async || e.with == "begun"
	reason, failed := modelFailures[e.with]
	switch current := r.claims == e.claim && r.status == domain.StatusRunning && !r.accepted; {
	case accepts && current:
		r.accepted, r.inReady, r.ready, r.began = true, true, m.now+m.silence(r), m.isWorkflow(r)
	case accepts: // nobody is told that it came too late
	case !current:
		return errSuperseded
	case failed:
		m.fail(r, reason, map[string]int{"503": modelAfter}[e.with])
	case e.with == "interrupted" && m.jobs[r.job].once:
		m.lose(r, domain.ReasonLost)
	default:
		m.end(r, modelEnds[e.with], 0)
	}
	return nil
}

// calls is a call of the target of an attempt. Of an attempt that is over, only the call that ended it may be repeated.
func (e modelEvent) calls(m *model, r *modelRun) error {
	if !m.jobs[r.job].async { // the token of a step is for results only
		return errToken
	}
	if r.claims != e.claim || r.status != domain.StatusRunning {
		completed := r.claims == e.claim &&
			(r.status == domain.StatusSucceeded || r.status == domain.StatusCancelled && r.asked())
		reported := slices.ContainsFunc(r.records, func(a modelRecord) bool { return a.claim == e.claim && a.reported })
		if e.do == "complete" && completed || (e.do == "report" || e.do == "report final") && reported {
			return nil
		}
		return errSuperseded
	}
	switch e.do {
	case "beat":
		if r.accepted && !r.asked() {
			r.ready = min(m.now+modelSilence, r.started+modelDuration)
		}
		return nil
	case "complete":
		m.end(r, modelEnds["200"], 0)
		return nil
	case "report":
		m.fail(r, domain.ReasonFailed, 0)
	default:
		m.end(r, modelEnd{domain.StatusDead, domain.ReasonFailed, domain.AttemptFailed}, 0)
	}
	r.records[len(r.records)-1].reported = true
	return nil
}

// listens ends the attempts whose targets have passed their deadlines.
func (modelEvent) listens(m *model) {
	for _, r := range slices.Clone(m.runs) { // as their steps stand before any of them ends here
		if m.isWorkflow(r) && m.frozen == "" && r.accepted && r.ready <= m.now {
			m.endWorkflow(r)
		}
	}
	for _, r := range slices.Clone(m.runs) {
		switch {
		case m.frozen != "" || !r.accepted || r.ready > m.now || m.isWorkflow(r):
		case m.approves(r) && m.now < r.started+modelExpiry: // it was cancelled before it waited
			m.end(r, modelEnds["cancelled"], 0)
		case m.approves(r):
			m.end(r, modelEnd{domain.StatusDead, domain.ReasonApprovalExpired, domain.AttemptTimedOut}, 0)
		case m.now >= r.started+modelDuration:
			m.fail(r, domain.ReasonTimeout, 0)
		default:
			m.lose(r, domain.ReasonSilent)
		}
	}
}

// fail lets another attempt follow, unless this was the last. after is the Retry-After; 0: none.
func (m *model) fail(r *modelRun, reason domain.Reason, after int) {
	j, outcome, sent := &m.jobs[r.job], domain.AttemptFailed, reason != domain.ReasonConnect
	if reason == domain.ReasonTimeout {
		outcome = domain.AttemptTimedOut
	}
	switch {
	case r.attempt >= j.maxAttempts, sent && j.once, m.isWorkflow(r),
		reason == domain.ReasonTimeout && (j.gated() || r.bounded):
		m.end(r, modelEnd{domain.StatusDead, reason, outcome}, 0)
	case m.expired(r, after):
		m.end(r, modelEnd{domain.StatusDead, domain.ReasonExpired, outcome}, 0)
	default:
		m.end(r, modelEnd{domain.StatusRetrying, reason, outcome}, max(after, modelRetry))
	}
}

// lose ends an attempt of which nobody will hear. The third in a row is the last.
func (m *model) lose(r *modelRun, reason domain.Reason) {
	j, row := &m.jobs[r.job], 1
	lost := modelEnd{domain.StatusRetrying, reason, domain.AttemptLost}
	if m.sendsNothing(r) {
		m.end(r, modelEnds["given back"], 0)
		return
	}
	for n := len(r.records); n > 0 && r.records[n-1].modelEnd == lost; n-- {
		row++
	}
	if row >= 3 || r.attempt >= j.maxAttempts || j.once {
		lost.status = domain.StatusDead
	}
	if row >= 3 && reason == domain.ReasonLost {
		lost.reason = domain.ReasonPoison
	}
	m.end(r, lost, 0)
}

// end ends an attempt. If another one follows, it is ready in so many hours.
func (m *model) end(r *modelRun, e modelEnd, in int) {
	if e.status == domain.StatusSucceeded && r.asked() {
		e.reason, e.outcome = r.reason, domain.AttemptCancelled
	}
	if e.outcome != "" {
		r.records = append(slices.Clip(r.records), modelRecord{modelEnd: e, claim: r.claims, number: r.attempt})
	}
	if e.status == domain.StatusSkipped || e.status == domain.StatusPending || e.outcome == domain.AttemptInterrupted {
		r.attempt-- // it does not count
	}
	switch {
	case r.asked():
		e.status, e.reason = domain.StatusCancelled, r.reason
	case e.status == domain.StatusSkipped && len(r.records) > 0: // something was sent before
		e.status = domain.StatusDead
	case !e.status.Final() && m.jobs[r.job].deleted:
		e.status, e.reason = domain.StatusCancelled, domain.ReasonJobDeleted
	}
	r.status, r.reason, r.accepted, r.inReady, r.ready = e.status, e.reason, false, !e.status.Final(), m.now+in
	if r.status == domain.StatusDead && r.step < 0 {
		r.letter = "open"
	}
	r.finished, r.finishedAs = m.now, m.events
	if j := &m.jobs[r.job]; r.status.Final() && j.active == r.id {
		j.active = uuid.Nil
		m.release(r.job, r.reason == domain.ReasonReplaced && j.waiting != uuid.Nil)
	}
	m.ended(r.id)
}

// release lets the oldest run that is parked at a gate come to it, or the one that waits there.
func (m *model) release(job int, waiting bool) {
	for _, r := range m.runs {
		if r.job == job && (waiting && r.id == m.jobs[job].waiting || !waiting && r.parked) {
			r.parked, r.ready = false, m.now
			return
		}
	}
}

// cancel ends the runs that wait, and asks for the end of those that run.
func (m *model) cancel(job int, reason domain.Reason, ids ...uuid.UUID) {
	j, over, freed := &m.jobs[job], []uuid.UUID(nil), false
	for _, id := range ids {
		r := m.run(id)
		if r.status.Final() {
			freed = freed || r.status == domain.StatusCancelled
			continue
		}
		waits := m.approves(r) && r.accepted
		if r.reason = reason; r.status == domain.StatusRunning && !waits {
			if reason == domain.ReasonTimeout {
				r.reason = domain.ReasonCancelled // until it has ended
			}
			continue
		}
		if waits {
			r.records = append(slices.Clip(r.records), modelRecord{
				modelEnd: modelEnd{domain.StatusCancelled, reason, domain.AttemptCancelled}, claim: r.claims, number: r.attempt,
			})
		}
		r.end(domain.StatusCancelled, reason)
		r.accepted, r.finished, r.finishedAs = false, m.now, m.events
		over = append(over, id)
		for _, place := range []*uuid.UUID{&j.active, &j.waiting} {
			if *place == id {
				*place = uuid.Nil
			}
		}
	}
	if (freed || len(over) > 0) && j.active == uuid.Nil {
		m.release(job, false)
	}
	for _, id := range over {
		m.ended(id)
	}
}
