// Package notice writes what happened to a job in the formats of notices: json, Slack's incoming webhooks,
// PagerDuty's Events API v2, Alertmanager's API v2, Microsoft Teams e-mail and templates. It sends nothing.
package notice

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
)

// Message is what one request tells a recipient: the body of a notice of format json. A message for PagerDuty has one
// subject, because a request can open or resolve one incident.
type Message struct {
	Headline string    `json:"headline"` // the newest state, in a line
	Tenant   string    `json:"tenant"`   // name
	Link     string    `json:"link,omitempty"`
	Subjects []Subject `json:"subjects"`
}

// Kind is the kind of a subject.
type Kind string

// The kinds of subjects.
const (
	KindJob    Kind = "job"    // one job, for a reason of its own
	KindJobs   Kind = "jobs"   // jobs that went wrong together
	KindHost   Kind = "host"   // a host that cannot be reached, and the jobs that call it
	KindLate   Kind = "late"   // runs that start late
	KindMissed Kind = "missed" // slots that will not run
	KindLimit  Kind = "limit"  // a limit of the tenant, and the jobs whose runs it made late or missed
	KindQueue  Kind = "queue"  // a queue that no replica served, likewise
	KindFreeze Kind = "freeze" // a freeze, likewise

	KindDatabase Kind = "database" // the database, which no replica could reach, likewise
	KindReplicas Kind = "replicas" // the replicas, none of which was alive, likewise

	KindDropped Kind = "dropped" // runs that were asked for, and skipped because of others of their jobs
	KindOverlap Kind = "overlap" // jobs most of whose slots are skipped, as the run before has not ended
)

// Passing reports whether a subject is about late or dropped runs and missed slots, each of which is over when it is
// told.
func (k Kind) Passing() bool {
	return slices.Contains([]Kind{
		KindLate, KindMissed, KindDropped, KindLimit, KindQueue, KindFreeze, KindDatabase, KindReplicas,
	}, k)
}

// State is the state of a subject.
type State string

// The states of a subject.
const (
	StateFiring   State = "firing"
	StateResolved State = "resolved"
	StatePassing  State = "passing" // nothing resolves it: it is over when it is told
)

// Subject is one cause, and the jobs that it concerns.
type Subject struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"` // of the job, host, limit or queue; of the tenant, if the subject is none of these
	// Key is the same in all messages about a subject, from the one that opens it to the one that resolves it.
	Key   string     `json:"key"`
	State State      `json:"state"`
	Since *time.Time `json:"since,omitempty"`
	Cause string     `json:"cause,omitempty"` // why, in words
	// Jobs are all jobs that the subject concerns. Those of which there is nothing new have no events.
	Jobs []domain.Digest `json:"jobs"`
	// More is how many jobs are left out, because they are too many for a message. Its link leads to all of them.
	More  int    `json:"more,omitempty"`
	title string // that counts all jobs, if some are left out
}

// Limit leaves out all but some jobs.
func (s *Subject) Limit(most int) {
	if n := len(s.Jobs) - most; n > 0 {
		s.title = s.Title()
		s.Jobs, s.More = s.Jobs[:most], s.More+n
	}
}

// Write writes a message in a recipient's form. resolves says that the recipient will hear that trouble is over; now is
// the database's clock.
func Write(m Message, to jobspec.Recipient, resolves bool, now time.Time) (body []byte, err error) {
	m.Headline = Headline(m)
	var form any = m
	switch to.Format {
	case jobspec.FormatSlack:
		form = slack(m)
	case jobspec.FormatPagerDuty:
		form = pagerDuty(m)
	case jobspec.FormatAlertmanager:
		form = alertmanager(m, resolves, now)
	case jobspec.FormatTeams:
		form = teams(m)
	case jobspec.FormatEmail:
		form = email(m)
	case jobspec.FormatTemplate:
		form, err = template(m, to.Template)
	case jobspec.FormatJSON:
	default:
		return nil, fmt.Errorf("this version of Punctual does not know notices of format %q", to.Format)
	}
	if err == nil {
		body, err = json.Marshal(form)
	}
	if err != nil {
		return nil, fmt.Errorf("writing a notice of format %s: %w", to.Format, err)
	}
	return body, nil
}

// AboutJob returns the message about one job.
func AboutJob(digest domain.Digest) Message {
	s := Subject{
		Kind: KindJob, Name: digest.Job, Key: digest.JobID.String(), State: StatePassing, Jobs: []domain.Digest{digest},
	}
	for _, e := range digest.Events {
		if e.Event == jobspec.EventOverlapping || e.Event == jobspec.EventOverlapOver {
			s.Kind = KindOverlap
		}
		switch {
		case e.Event.EndsTrouble():
			s.State, s.Since = StateResolved, e.Since
		case e.Event.Trouble():
			s.State, s.Since = StateFiring, cmp.Or(e.Since, &e.FirstAt)
		}
	}
	return Message{Tenant: digest.Tenant, Link: digest.Link, Subjects: []Subject{s}}
}

// Events returns the events that a message tells of, in order.
func (m Message) Events() []string {
	found := map[string]bool{}
	for _, s := range m.Subjects {
		for _, j := range s.Jobs {
			for _, e := range j.Events {
				found[string(e.Event)] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// NewestAt returns when the newest of the events of a message happened; it is zero if there is none.
func (m Message) NewestAt() (newest time.Time) {
	for _, s := range m.Subjects {
		for _, j := range s.Jobs {
			for _, e := range j.Events {
				newest = jobspec.Later(newest, e.LastAt)
			}
		}
	}
	return newest
}

func earlier(a, b *time.Time) *time.Time {
	if a == nil || b != nil && b.Before(*a) {
		return b
	}
	return a
}

// approval reports whether a message says that a step waits for approval.
func (m Message) approval() bool {
	digest, ok := m.single()
	return ok && len(digest.Events) > 0 && digest.Events[0].Event == jobspec.EventApproval
}

// single returns the digest of a message about one job.
func (m Message) single() (domain.Digest, bool) {
	if len(m.Subjects) == 1 && m.Subjects[0].ofOneJob() {
		return m.Subjects[0].Jobs[0], true
	}
	return domain.Digest{}, false
}

// ofOneJob reports whether a subject is something about one job.
func (s Subject) ofOneJob() bool {
	return s.Kind == KindJob || s.Kind == KindOverlap && len(s.Jobs) == 1 && s.More == 0
}

// Headline says the newest state in a line.
func Headline(m Message) string {
	if digest, ok := m.single(); ok {
		return jobHeadline(digest)
	}
	var parts []string
	for _, s := range m.Groups() {
		parts = append(parts, s.Title())
	}
	return fmt.Sprintf("%s (tenant %s)", strings.Join(parts, "; "), m.Tenant)
}

// Groups returns the subjects of a message for people: single jobs in the same state are one group.
func (m Message) Groups() []Subject {
	var groups []Subject
	type group struct {
		Kind
		State
	}
	at := map[group]int{}
	for _, s := range m.Subjects {
		if s.Kind != KindJob && s.Kind != KindOverlap {
			groups = append(groups, s)
			continue
		}
		i, there := at[group{s.Kind, s.State}]
		if !there {
			at[group{s.Kind, s.State}] = len(groups)
			s.Jobs = slices.Clone(s.Jobs)
			groups = append(groups, s)
			continue
		}
		g := &groups[i]
		g.Name, g.Jobs, g.More = m.Tenant, append(g.Jobs, s.Jobs...), g.More+s.More
		if g.Kind == KindJob {
			g.Kind = KindJobs
		}
		g.Since = earlier(g.Since, s.Since)
	}
	return groups
}

// Title says in a line what state a subject is in.
func (s Subject) Title() string {
	if s.title != "" {
		return s.title
	}
	unwell, over := s.split()
	since := ""
	if s.Since != nil {
		since = " since " + at(*s.Since)
	}
	switch {
	case s.Kind == KindHost && s.State == StateResolved:
		return s.reachedTitle(unwell, over)
	case s.Kind == KindHost:
		return fmt.Sprintf("%s cannot be reached%s: %s", s.Name, since,
			strings.Join(append([]string{times(len(unwell), "job") + " affected"}, over...), "; "))
	case s.Kind == KindOverlap:
		return s.overlapTitle(since)
	case s.Kind.Passing():
		return s.heldTitle(since)
	case s.State == StateResolved && len(over) > 0:
		return strings.Join(over, "; ")
	case s.State == StateResolved:
		return some(s.Jobs) + " recovered"
	case s.State == StatePassing:
		return some(s.Jobs) + " ran late or missed slots"
	}
	return strings.Join(append([]string{
		some(unwell) + verb(len(unwell), " is", " are") + " failing" + since,
	}, over...), "; ")
}

func (s Subject) overlapTitle(since string) string {
	of, words := s.Jobs, " slots no longer"
	if s.State != StateResolved {
		of, _ = s.split()
		words = " most slots" + since
	}
	n := len(of) + s.More
	jobs := some(of)
	if n > 1 {
		jobs = times(n, "job")
	}
	return jobs + verb(n, " skips", " skip") + words
}

// some names a job, or says how many there are.
func some(jobs []domain.Digest) string {
	if len(jobs) == 1 {
		return "job " + jobs[0].Job
	}
	return times(len(jobs), "job")
}

func verb(n int, one, many string) string { return map[bool]string{true: one, false: many}[n == 1] }

// split returns the jobs that are not well, by their newest event, and says what ended the trouble of the others.
func (s Subject) split() (unwell []domain.Digest, over []string) {
	ended := map[string][]domain.Digest{}
	for _, j := range s.Jobs {
		if e := newest(j); e != nil && e.Event.EndsTrouble() {
			ended[e.Cause] = append(ended[e.Cause], j)
		} else {
			unwell = append(unwell, j)
		}
	}
	for _, cause := range slices.Sorted(maps.Keys(ended)) {
		n := len(ended[cause])
		over = append(over, some(ended[cause])+map[string]string{
			"": " recovered", jobspec.EndJobDeleted: verb(n, " was", " were") + " deleted",
			jobspec.EndJobPaused:     verb(n, " is", " are") + " paused",
			jobspec.EndNotAsked:      " no longer" + verb(n, " tells", " tell") + " of recoveries",
			jobspec.EndTenantDeleted: verb(n, " was", " were") + " deleted with the tenant",
		}[cause])
	}
	return unwell, over
}

// reachedTitle says that a host can be reached again, and which of its jobs have recovered; or that none is left that
// could tell.
func (s Subject) reachedTitle(unwell []domain.Digest, over []string) string {
	recovered, _ := s.count(jobspec.EventRecovered)
	switch n := len(s.Jobs) - len(unwell); {
	case len(unwell) == 0 && recovered == 0:
		return "no job is left to tell whether " + s.Name + " can be reached again: " + strings.Join(over, "; ")
	case n == 0:
		return fmt.Sprintf("%s can be reached again: %s%s not succeeded yet", s.Name, some(unwell),
			verb(len(unwell), " has", " have"))
	case len(unwell) > 0 && len(over) == 1 && recovered > 0:
		return fmt.Sprintf("%s can be reached again: %d of %s recovered, the others have not succeeded yet", s.Name, n,
			times(len(s.Jobs), "job"))
	}
	return s.Name + " can be reached again: " + strings.Join(over, "; ")
}

// heldTitle says how many runs are late and how many jobs missed slots, since when and why; or that what held them up
// is over.
func (s Subject) heldTitle(since string) string {
	var parts []string
	if runs, jobs := s.count(jobspec.EventLate); jobs > 0 {
		parts = append(parts, fmt.Sprintf("%s of %s late", times(runs, "run"), times(jobs, "job")))
	}
	if slots, jobs := s.count(jobspec.EventMissed); jobs > 0 {
		parts = append(parts, fmt.Sprintf("%s of %s missed", times(slots, "slot"), times(jobs, "job")))
	}
	if runs, jobs := s.count(jobspec.EventDropped); jobs > 0 {
		parts = append(parts, fmt.Sprintf("%s of %s dropped", times(runs, "run"), times(jobs, "job")))
	}
	what := strings.Join(parts, ", ")
	if s.State == StateResolved {
		end := map[Kind]string{
			KindLimit: s.Name + " holds back no more runs", KindQueue: fmt.Sprintf("the queue %q is served", s.Name),
			KindFreeze: "the freeze is over", KindLate: "no more runs are late", KindMissed: "no more slots are missed",
			KindDropped:  "no more runs are dropped",
			KindDatabase: "replicas reach the database", KindReplicas: "replicas are alive",
		}[s.Kind]
		if what == "" {
			return end + since
		}
		return end + "; " + what + since
	}
	if what == "" {
		what = "runs late or slots missed"
	}
	switch {
	case s.Cause == "":
	case s.Kind == KindFreeze, s.Kind == KindDatabase, s.Kind == KindReplicas,
		s.Kind == KindQueue && s.State == StatePassing:
		since = ": " + s.Cause // which says from when to when
	default:
		since += ": " + s.Cause
	}
	return what + since
}

// count counts the runs of an event, or its missed slots, and the jobs that it happened to. A skip on its own is one
// slot at least.
func (s Subject) count(event jobspec.Event) (n, jobs int) {
	for _, j := range s.Jobs {
		for _, e := range j.Events {
			if e.Event == event {
				n, jobs = n+max(e.Slots, e.Count), jobs+1
			}
		}
	}
	return n, jobs
}

// jobHeadline says in a line what happened to a job last.
func jobHeadline(digest domain.Digest) string {
	newest := newest(digest)
	if newest == nil {
		return fmt.Sprintf("Job %s (tenant %s)", digest.Job, digest.Tenant)
	}
	last := newest.Event
	what := map[jobspec.Event]string{
		jobspec.EventFailing: "is failing", jobspec.EventDead: "has dead runs", jobspec.EventMissed: "missed slots",
		jobspec.EventLate: "runs late", jobspec.EventStale: "is stale", jobspec.EventRecovered: "recovered",
		jobspec.EventOverlapping: "skips most slots", jobspec.EventOverlapOver: "skips slots no longer",
		jobspec.EventDropped: "has dropped runs", jobspec.EventTest: "sends a test notice",
	}
	if last == jobspec.EventEnded {
		_, over := Subject{Jobs: []domain.Digest{digest}}.split()
		return fmt.Sprintf("J%s (tenant %s)", strings.TrimPrefix(over[0], "j"), digest.Tenant)
	}
	if last == jobspec.EventApproval {
		return fmt.Sprintf("Job %s: step %s waits for approval (tenant %s)", digest.Job, newest.Step, digest.Tenant)
	}
	return fmt.Sprintf("Job %s %s (tenant %s)", digest.Job, cmp.Or(what[last], string(last)), digest.Tenant)
}

// newest is the event that says the newest state of a job; if none does, the last event.
func newest(digest domain.Digest) *domain.DigestEvent {
	for i := len(digest.Events) - 1; i >= 0; i-- {
		if e := &digest.Events[i]; e.Event.Trouble() || e.Event.EndsTrouble() {
			return e
		}
	}
	if n := len(digest.Events); n > 0 {
		return &digest.Events[n-1]
	}
	return nil
}

// describe says in a sentence what an event is, since when and how often.
func describe(e domain.DigestEvent) string {
	switch e.Event {
	case jobspec.EventFailing:
		return "an attempt failed, the first since the job was well, at " + at(e.FirstAt)
	case jobspec.EventDead:
		return fmt.Sprintf("%s died, the last at %s%s", times(e.Count, "run"), at(e.LastAt), failing(e, "; failing since "))
	case jobspec.EventMissed:
		return fmt.Sprintf("slots were missed and will not run: %s, the last at %s",
			times(e.Count, "recorded skip"), at(e.LastAt))
	case jobspec.EventEnded:
		if e.Cause == jobspec.EndJobPaused {
			return "no further failure is reported, unless a run fails again"
		}
		return "no further failure is reported"
	case jobspec.EventLate:
		return fmt.Sprintf("%s first claimed after the job's tolerance, the last at %s", times(e.Count, "run"), at(e.LastAt))
	case jobspec.EventStale:
		if e.Since == nil {
			return "no success within expect_success_within"
		}
		return "no success since " + at(*e.Since)
	case jobspec.EventOverlapping:
		if len(e.Runs) > 0 && e.Runs[0].Error != "" {
			return e.Runs[0].Error
		}
		return "most slots were skipped, because the run before had not ended"
	case jobspec.EventDropped:
		return fmt.Sprintf("%s skipped although asked for, because others of the job were active or too many waited, the "+
			"last at %s", times(e.Count, "run"), at(e.LastAt))
	case jobspec.EventOverlapOver:
		return "most slots run again to their end" + when(", which they did not since ", e.Since)
	case jobspec.EventRecovered:
		return "a run succeeded at " + at(e.LastAt) + failing(e, ", the first since ")
	case jobspec.EventApproval:
		return fmt.Sprintf("the step %s waits since %s%s", e.Step, at(e.FirstAt), when(", until ", e.Until))
	case jobspec.EventTest:
		return "a test: nothing happened to any job"
	}
	return fmt.Sprintf("%s, %s", e.Event, times(e.Count, "time"))
}

// failing says since when attempts failed, if that is known, and how many.
func failing(e domain.DigestEvent, words string) string {
	text := when(words, e.Since)
	if text != "" && e.Failures > 0 {
		text += fmt.Sprintf(" (%s in a row)", times(e.Failures, "failed attempt"))
	}
	return text
}

// when adds an instant to words; it is empty if the instant is not known.
func when(words string, instant *time.Time) string {
	if instant == nil {
		return ""
	}
	return words + at(*instant)
}

func times(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func at(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// severity is how bad an event is, in words that PagerDuty knows, as do most rules for Alertmanager.
func severity(e jobspec.Event) string {
	switch e {
	case jobspec.EventDead, jobspec.EventStale:
		return "critical"
	case jobspec.EventFailing:
		return "error"
	case jobspec.EventMissed, jobspec.EventLate, jobspec.EventOverlapping, jobspec.EventDropped:
		return "warning"
	case jobspec.EventRecovered, jobspec.EventOverlapOver, jobspec.EventTest, jobspec.EventEnded,
		jobspec.EventApproval:
	}
	return "info"
}

// cut shortens a text to at most most bytes without breaking a character.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	const more = "…"
	return strings.TrimRight(strings.ToValidUTF8(s[:most-len(more)], ""), " \n") + more
}

// Test returns the requests that test a recipient, one after the other: a notice with the event test, and, if that
// opens something, a notice that closes it.
func Test(digest domain.Digest, r jobspec.Recipient, now time.Time) ([][]byte, error) {
	m := AboutJob(digest)
	body, err := Write(m, r, true, now)
	if err != nil || r.Format != jobspec.FormatPagerDuty {
		return [][]byte{body}, err
	}
	m.Subjects[0].State = StateResolved
	over, err := Write(m, r, true, now)
	return [][]byte{body, over}, err
}

// Excerpt returns as much of a response as notices quote: its first bytes, in whole characters that JSON can hold.
func Excerpt(response string) string {
	response = strings.ReplaceAll(strings.ToValidUTF8(response, "\uFFFD"), "\x00", "\uFFFD")
	return strings.ToValidUTF8(response[:min(len(response), domain.DigestResponse)], "")
}
