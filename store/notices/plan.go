package notices

import (
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/scheduler/notice"
)

const (
	// together is how many jobs that go wrong at once have an incident each at PagerDuty. More of them share one.
	together = 10
	// mostNames bounds the names of the jobs in a message, in bytes. Slack takes 45 sections of 3,000 characters.
	mostNames = 100_000
)

// The kinds of trouble of a job. Each has a state of its own, which nothing but its own end ends.
const (
	health   = "health"   // it is failing, dead or stale; and what passes by itself
	overlaps = "overlaps" // most of its slots are skipped
)

// state is a row of notice_states: of one job and kind of trouble, for one recipient.
type state struct {
	job      uuid.UUID
	kind     string
	resolves bool
	troubled bool
	open     bool
	key      string
	known    []domain.Identity

	base   domain.Digest  // that tells of no event
	unsent *domain.Digest // what to tell, with what may not have arrived; nil: nothing
	again  bool           // some of it was in a message that may not have arrived
	dirty  bool           // it may be told now
	until  time.Time      // it is put off until then
	fate   fate
}

// fate is what becomes of a state in a plan.
type fate int

const (
	waits    fate = iota
	included      // it is in the message
	forgets       // nobody needs to be told of it
)

// over is the key of a row whose host's incident has ended before the job succeeded. Its success is not told.
const over = "over"

// stateful reports whether a recipient keeps a state for each subject, as opposed to a list of messages for people.
func stateful(f jobspec.Format) bool {
	return f == jobspec.FormatPagerDuty || f == jobspec.FormatAlertmanager
}

// settle finds the newest state of rows, and the subjects that they belong to.
func settle(rows []*state, f jobspec.Format) {
	for _, r := range rows {
		r.settle(f)
	}
	nameIncidents(rows, f)
}

// plan decides, of settled rows and open causes, what the next message to a recipient says. It marks the rows that are
// in the message, that are put off, and that nobody needs to be told of.
func (to *recipient) plan(rows []*state, w world) []notice.Subject {
	order := to.keysOfCauses()
	groups := map[string][]*state{}
	for _, key := range order {
		groups[key] = []*state{}
	}
	for _, r := range rows {
		if r.fate == forgets || r.key == "" {
			continue
		}
		if groups[r.key] == nil {
			order = append(order, r.key)
		}
		groups[r.key] = append(groups[r.key], r)
	}
	var all []notice.Subject
	names := 0
	for _, key := range order {
		for _, r := range groups[key] {
			names += len(r.base.Job) + 10
		}
		if len(all) > 0 && (to.To.Format == jobspec.FormatPagerDuty || names > mostNames) {
			to.lookAt = &to.now // the next message tells of it
			break
		}
		s, tells := to.tell(key, groups[key], w)
		if !tells {
			continue
		}
		all = append(all, s)
		for _, r := range groups[key] {
			to.take(r, s)
		}
	}
	return all
}

// take puts a state into the message, as part of a subject.
func (to *recipient) take(r *state, s notice.Subject) {
	first := !r.open && r.troubled && r.resolves
	r.open, r.fate = r.open || first, included
	own := r.troubled && s.Kind == notice.KindHost && s.State == notice.StateResolved && !r.unreachable()
	to.Parts = append(to.Parts, notice.Part{Job: r.job, Kind: r.kind, Key: r.key, Open: r.open, First: first, Own: own})
}

// unreachable reports whether the newest that is to be told is that the job's host could not be reached.
func (r *state) unreachable() bool {
	if r.unsent == nil {
		return true
	}
	_, is := r.unsent.Unreachable()
	return is
}

// settle finds the row's newest state. Trouble that is over before the recipient could hear of it is no incident.
func (r *state) settle(f jobspec.Format) {
	if r.unsent == nil {
		return
	}
	state := r.unsent.State()
	if kind, _, _ := kindOf(r.key); kind.Passing() && (state != "" || r.troubled) {
		r.key = ""
	}
	known := r.key == over
	if known {
		r.key = ""
	}
	switch {
	case state.Trouble():
		r.troubled = true
	case state.EndsTrouble():
		r.troubled = false
	}
	_, _, grouped := kindOf(r.key) // whose recovery is told with that of the others
	if state.EndsTrouble() && !r.open && (stateful(f) || known || r.kind == overlaps) && !grouped {
		kept := r.unsent.Only(func(e jobspec.Event) bool {
			return e == jobspec.EventLate || e == jobspec.EventMissed || e == jobspec.EventDropped
		})
		if r.unsent, r.key = &kept, ""; len(kept.Events) == 0 {
			r.fate = forgets
		}
	}
	if !r.troubled && !r.open && !grouped {
		r.key = ""
	}
}

// nameIncidents says which subject each row that has something to tell belongs to. A row that is open keeps its own.
func nameIncidents(rows []*state, f jobspec.Format) {
	own := map[string][]*state{}
	for _, r := range rows {
		if r.fate == forgets || r.unsent == nil || r.key != "" {
			continue
		}
		switch {
		case passes(*r.unsent) && !r.troubled:
			r.key = passingKey(*r.unsent)
		case r.troubled:
			if _, is := r.unsent.Unreachable(); is {
				r.key = string(notice.KindHost) + ":" + r.unsent.Tenant + ":" + r.unsent.Host
				continue
			}
			own[r.kind] = append(own[r.kind], r)
			r.key = r.ownKey()
		default:
			r.key = r.ownKey()
		}
	}
	for kind, rows := range own {
		if f != jobspec.FormatPagerDuty || len(rows) <= together {
			continue
		}
		key := map[string]string{health: string(notice.KindJobs), overlaps: overlaps}[kind] + ":" + uuid.NewString()
		for _, r := range rows {
			r.key = key
		}
	}
}

// ownKey is the key of the subject of a state that is no other job's.
func (r *state) ownKey() string {
	if r.kind == overlaps {
		return strings.Join([]string{string(notice.KindOverlap), r.base.Tenant, r.base.Job}, ":")
	}
	return r.job.String()
}

// tell says what there is to tell of a subject now, or puts it off: jobs that join an incident that the recipient knows
// of are told when it is over, or a gap after it was last told of.
func (to *recipient) tell(key string, rows []*state, w world) (s notice.Subject, tells bool) {
	kind, name, grouped := kindOf(key)
	if kind.Passing() {
		return to.tellPassing(key, rows, w)
	}
	troubled, open, again, dirty := false, false, false, false
	for _, r := range rows {
		troubled, open = troubled || r.troubled, open || r.open
		again, dirty = again || r.again, dirty || r.dirty
	}
	if !dirty {
		return s, false
	}
	if !grouped {
		s = notice.AboutJob(*rows[0].unsent).Subjects[0]
		s.Key = key
		if rows[0].troubled {
			s.State = notice.StateFiring
		}
		return s, true
	}
	reached := kind == notice.KindHost && open && to.reached(key, name, rows)
	known := open || !rows[0].resolves
	if until := to.sent[key].Add(gap); troubled && !reached && known && !again && until.After(to.now) {
		putOff(rows, until)
		return s, false
	}
	if kind == notice.KindJobs || kind == notice.KindOverlap {
		name = rows[0].base.Tenant
	}
	s = notice.Subject{Kind: kind, Name: name, Key: key, State: notice.StateResolved}
	switch {
	case reached:
		to.Over = append(to.Over, key)
	case troubled:
		s.State = notice.StateFiring
	}
	addJobs(&s, rows)
	return s, true
}

// putOff puts off what there is to tell of rows.
func putOff(rows []*state, until time.Time) {
	for _, r := range rows {
		if r.dirty {
			r.until = until
		}
	}
}

// reached reports whether a host has answered a job since the last failure that it could not be reached: then its
// incident is over, although other jobs have yet to succeed.
func (to *recipient) reached(key, name string, rows []*state) bool {
	answered, failed := time.Time{}, to.sent[key]
	for _, r := range rows {
		if r.unsent == nil {
			continue
		}
		own := r.troubled && !r.unreachable()
		for _, e := range r.unsent.Events {
			switch {
			case e.Event == jobspec.EventRecovered && r.unsent.Host == name, e.Event == jobspec.EventDead && own:
				answered = jobspec.Later(answered, e.LastAt)
			case e.Event == jobspec.EventDead || e.Event == jobspec.EventFailing:
				failed = jobspec.Later(failed, e.LastAt)
			}
		}
	}
	return answered.After(failed)
}

// addJobs adds jobs to a subject, and since when and why it is what it is.
func addJobs(s *notice.Subject, rows []*state) {
	for _, r := range rows {
		digest := r.base
		if r.unsent != nil {
			digest = *r.unsent
		}
		for _, e := range digest.Events {
			since := e.FirstAt
			if e.Since != nil && e.Event != jobspec.EventStale {
				since = *e.Since
			}
			over := s.State == notice.StateFiring && e.Event.EndsTrouble()
			if !over && (s.Since == nil || since.Before(*s.Since)) {
				s.Since = &since
			}
			if s.Cause == "" && len(e.Runs) > 0 {
				s.Cause = e.Runs[0].Error
			}
		}
		s.Jobs = append(s.Jobs, digest)
	}
}

// kindOf returns the kind and the name of the subject with a key, and whether it may have many jobs. A job's key is its
// id.
func kindOf(key string) (kind notice.Kind, name string, grouped bool) {
	before, after, grouped := strings.Cut(key, ":")
	if !grouped {
		return notice.KindJob, "", false
	}
	kind = notice.Kind(before)
	switch kind {
	case overlaps:
		return notice.KindOverlap, "", true
	case notice.KindOverlap:
		return notice.KindOverlap, "", false
	case notice.KindHost, notice.KindLimit, notice.KindQueue:
		_, after, _ = strings.Cut(after, ":")
	default:
	}
	return kind, after, true
}

// brief leaves out the details of a message about many jobs, and jobs beyond thousands.
func brief(subjects []notice.Subject) {
	const detailed = 20
	n := 0
	for i := range subjects {
		subjects[i].Limit(mostRows)
		jobs := subjects[i].Jobs
		for k := range jobs {
			if n++; n <= detailed {
				continue
			}
			jobs[k].Events = slices.Clone(jobs[k].Events)
			for e := range jobs[k].Events {
				jobs[k].Events[e].Runs = []domain.DigestRun{}
			}
		}
	}
}
