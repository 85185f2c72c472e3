package notices

import (
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/scheduler/notice"
)

const (
	// together is how many jobs that go wrong at once have an incident each at PagerDuty. More of them share one.
	together = 10
	// mostNames bounds the names of the jobs in a message, in bytes. Slack takes 45 sections of 3,000 characters.
	mostNames = 100_000
)

// subject is a row of notice_subjects.
type subject struct {
	job      uuid.UUID
	unsent   *domain.News // sending and news; nil: nothing
	news     domain.News  // the newest that is known, for the job's name
	again    bool         // it was in a message that may not have arrived
	dirty    bool         // there is something to tell now
	resolves bool
	troubled bool
	open     bool
	own      bool // the host can be reached, and the job fails all the same
	key      string
	until    time.Time // it is put off until then
	forget   bool      // there is nothing to tell
	takes    bool      // it is in the message
	known    []domain.Identity
}

// over is the key of a row whose host's incident has ended before the job succeeded. Its success is no news.
const over = "over"

// stateful reports whether a recipient keeps a state for each subject, as opposed to a list of messages for people.
func stateful(f domain.Format) bool {
	return f == domain.FormatPagerDuty || f == domain.FormatAlertmanager
}

// settle finds the newest state of rows, and the subjects that they belong to.
func settle(rows []*subject, f domain.Format) {
	for _, r := range rows {
		r.settle(f)
	}
	nameIncidents(rows, f)
}

// plan decides, of settled rows and open causes, what the next message to a recipient says. It marks the rows that are
// in the message, that are put off, and that nobody needs to be told of.
func (l *line) plan(rows []*subject, w world) []notice.Subject {
	order := l.keysOfCauses()
	groups := map[string][]*subject{}
	for _, key := range order {
		groups[key] = []*subject{}
	}
	for _, r := range rows {
		if r.forget || r.key == "" {
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
			names += len(r.news.Job) + 10
		}
		if len(all) > 0 && (l.To.Format == domain.FormatPagerDuty || names > mostNames) {
			l.lookAt = &l.now // the next message tells of it
			break
		}
		s, tells := l.tell(key, groups[key], w)
		if !tells {
			continue
		}
		all = append(all, s)
		for _, r := range groups[key] {
			l.take(r)
		}
	}
	return all
}

// take puts a row into the message.
func (l *line) take(r *subject) {
	l.Jobs = append(l.Jobs, r.job)
	if !r.open && r.troubled && r.resolves {
		r.open, l.Opened = true, append(l.Opened, r.job)
	}
	if r.open {
		l.Opens, l.Under = append(l.Opens, r.job), append(l.Under, r.key)
	}
	if r.own {
		l.Own = append(l.Own, r.job)
	}
	r.takes = true
}

// settle finds the row's newest state. Trouble that is over before the recipient could hear of it is no incident.
func (r *subject) settle(f domain.Format) {
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
	if state.EndsTrouble() && !r.open && (stateful(f) || known) && !grouped {
		kept := r.unsent.For(domain.Recipient{}, nil)
		for _, e := range r.unsent.Events {
			if e.Event == domain.EventLate || e.Event == domain.EventMissed || e.Event == domain.EventDropped {
				kept.Events = append(kept.Events, e)
			}
		}
		r.unsent, r.key = &kept, ""
		r.forget = len(kept.Events) == 0
	}
	if !r.troubled && !r.open && !grouped {
		r.key = ""
	}
}

// nameIncidents says which subject each row that has something to tell belongs to. A row that is open keeps its own.
func nameIncidents(rows []*subject, f domain.Format) {
	var own []*subject
	for _, r := range rows {
		if r.forget || r.unsent == nil || r.key != "" {
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
			own = append(own, r)
			r.key = r.job.String()
		default:
			r.key = r.job.String()
		}
	}
	if f == domain.FormatPagerDuty && len(own) > together {
		key := string(notice.KindJobs) + ":" + uuid.NewString()
		for _, r := range own {
			r.key = key
		}
	}
}

// tell says what there is to tell of a subject now, or puts it off: jobs that join an incident that the recipient knows
// of are told when it is over, or a gap after it was last told of.
func (l *line) tell(key string, rows []*subject, w world) (s notice.Subject, tells bool) {
	kind, name, grouped := kindOf(key)
	if kind == notice.KindOverlap {
		return l.tellOverlap(key, name, w)
	}
	if kind.Passing() {
		return l.tellPassing(key, rows, w)
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
		if rows[0].troubled {
			s.State = notice.StateFiring
		}
		return s, true
	}
	reached := kind == notice.KindHost && open && l.reached(key, name, rows)
	if until := l.sent[key].Add(gap); troubled && !reached && (open || !rows[0].resolves) && !again && until.After(l.now) {
		putOff(rows, until)
		return s, false
	}
	if kind == notice.KindJobs {
		name = rows[0].news.Tenant
	}
	s = notice.Subject{Kind: kind, Name: name, Key: key, State: notice.StateResolved}
	switch {
	case reached:
		l.Over = append(l.Over, key)
	case troubled:
		s.State = notice.StateFiring
	}
	addJobs(&s, rows)
	return s, true
}

// putOff puts off what there is to tell of rows.
func putOff(rows []*subject, until time.Time) {
	for _, r := range rows {
		if r.dirty {
			r.until = until
		}
	}
}

// reached reports whether a host has answered a job since the last failure that it could not be reached: then its
// incident is over, although other jobs have yet to succeed.
func (l *line) reached(key, name string, rows []*subject) bool {
	answered, failed := time.Time{}, l.sent[key]
	for _, r := range rows {
		if r.unsent == nil {
			continue
		}
		_, unreachable := r.unsent.Unreachable()
		r.own = r.troubled && !unreachable
		for _, e := range r.unsent.Events {
			switch {
			case e.Event == domain.EventRecovered && r.unsent.Host == name, e.Event == domain.EventDead && r.own:
				answered = domain.Later(answered, e.LastAt)
			case e.Event == domain.EventDead || e.Event == domain.EventFailing:
				failed = domain.Later(failed, e.LastAt)
			}
		}
	}
	return answered.After(failed)
}

// addJobs adds jobs to a subject, and since when and why it is what it is.
func addJobs(s *notice.Subject, rows []*subject) {
	for _, r := range rows {
		news := r.news
		if r.unsent != nil {
			news = *r.unsent
		} else {
			news.Events = []domain.NewsEvent{}
		}
		for _, e := range news.Events {
			since := e.FirstAt
			if e.Since != nil && e.Event != domain.EventStale {
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
		s.Jobs = append(s.Jobs, news)
	}
}

// kindOf returns the kind and the name of the subject with a key. A job's key is its id.
func kindOf(key string) (kind notice.Kind, name string, grouped bool) {
	before, after, grouped := strings.Cut(key, ":")
	if !grouped {
		return notice.KindJob, "", false
	}
	kind = notice.Kind(before)
	switch kind {
	case notice.KindHost, notice.KindLimit, notice.KindQueue, notice.KindOverlap:
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
				jobs[k].Events[e].Runs = []domain.NewsRun{}
			}
		}
	}
}
