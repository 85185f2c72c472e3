package store_test

import (
	"cmp"
	"errors"
	"reflect"
	"slices"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/pg"
)

// The model of what is done to jobs.

// current returns the newest job of a name.
func (m *model) current(base int) (job int) {
	for i, j := range m.jobs {
		if j.base == base {
			job = i
		}
	}
	return job
}

// creates adds a job under the name of one that was deleted.
func (e modelEvent) creates(m *model) error {
	m.create(m.jobs[e.job].base)
	return nil
}

// create adds a job. Its links are to jobs that there are now.
func (m *model) create(base int) {
	d := modelJobs[base]
	d.then, d.slots = nil, modelNoon
	for _, l := range modelJobs[base].then {
		if l.job = m.current(l.job); !m.jobs[l.job].deleted {
			d.then = append(d.then, l)
		}
	}
	j := modelJob{base: base, fills: map[modelSlot]uuid.UUID{}}
	j.redefine(&d)
	m.jobs = append(m.jobs, j)
}

// redefine adds a version.
func (j *modelJob) redefine(d *modelDefinition) {
	j.modelDefinition, j.versions = d, append(slices.Clip(j.versions), d)
	j.gated = d.gates()
}

// edited is the version that an edit writes.
func (e modelEvent) edited(j modelJob) *modelDefinition {
	next := *j.modelDefinition
	if next.policy, next.maxAttempts, next.most = jobspec.ConcurrencyPolicy(e.with), e.key, 0; next.queues() {
		next.most = modelPending
	}
	if !j.onEvent {
		next.slots = cmp.Or(e.latest, next.slots)
	}
	if e.do == "roll back" {
		next = *j.versions[e.key]
	}
	return &next
}

// edits writes another version of a job, or an earlier one again. If its runs may overlap from now on, all at its gate
// are due. If they may no longer, those in flight have its gate until they have ended.
func (e modelEvent) edits(m *model) error {
	j := &m.jobs[e.job]
	if j.deleted {
		return errBadState
	}
	next := e.edited(*j)
	if reflect.DeepEqual(next, j.modelDefinition) {
		return nil
	}
	if e.due && !j.paused && !j.onEvent {
		m.settles(e)
	}
	was := j.gated
	j.redefine(next)
	switch {
	case was && !j.gated:
		j.active, j.waiting, j.earlier = uuid.Nil, uuid.Nil, nil
		for _, r := range m.runs {
			if r.job == e.job && r.parked {
				r.parked, r.ready = false, m.now
			}
		}
	case j.gated && !was:
		for _, r := range slices.Backward(m.runs) {
			if r.job == e.job && r.step < 0 && (r.status == domain.StatusRunning || r.status == domain.StatusRetrying) {
				j.earlier = append(j.earlier, r.id)
			}
		}
		if len(j.earlier) > 0 {
			j.active = j.earlier[0]
		}
	}
	return nil
}

// settles accounts for a slot that is due when its job is edited, by the version until then.
func (m *model) settles(e modelEvent) {
	if blocker, _ := m.faces(e.job).overlap(m.jobs[e.job].policy); blocker != uuid.Nil {
		m.enter(e.of, e.job, domain.TriggerSchedule).overlaps(blocker)
		return
	}
	m.enter(e.run, e.job, domain.TriggerSchedule)
}

// pauses pauses a job, for some hours or until somebody resumes it, or resumes it.
func (e modelEvent) pauses(m *model) error {
	j := &m.jobs[e.job]
	if j.deleted {
		return errBadState
	}
	j.paused, j.until = e.do == "pause", 0
	if e.hours > 0 {
		j.until = m.now + e.hours
	}
	return nil
}

// pausesMany pauses or resumes the jobs that a filter selects, and that are not paused or active already.
func (e modelEvent) pausesMany(m *model) (err error) {
	e.do = map[bool]string{true: "pause", false: "resume"}[e.do == "pause many"]
	for i, j := range m.jobs {
		if !j.deleted && j.base%modelSides == e.key && j.paused != (e.do == "pause") {
			e.job = i
			err = errors.Join(err, e.pauses(m))
		}
	}
	return err
}

// deletes ends a job: what waits is cancelled, and what runs ends with its attempt.
func (e modelEvent) deletes(m *model) error {
	j := &m.jobs[e.job]
	if j.deleted {
		return errBadState
	}
	j.deleted, j.paused, j.until = true, false, 0
	m.cancel(e.job, domain.ReasonJobDeleted, pg.Column(m.where(func(r *modelRun) bool {
		return r.job == e.job && r.inReady && !r.accepted
	}), func(r *modelRun) uuid.UUID { return r.id })...)
	before := len(m.dated)
	if m.dated = slices.DeleteFunc(m.dated, func(d modelDated) bool { return d.job == e.job }); len(m.dated) < before {
		m.enter(e.of, e.job, domain.TriggerManual).skip(domain.ReasonJobDeleted)
	}
	return nil
}
