package prove

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Rule is an invariant that must hold whatever happened.
type Rule string

// The rules.
const (
	OneRunPerSlot  Rule = "every due slot has exactly one run or one recorded skip"
	NoPhantoms     Rule = "every run belongs to a slot that its job has"
	PausesEnd      Rule = "a slot is skipped as paused only while its job is paused"
	AllFinal       Rule = "every run is final in the end"
	SuccessSeen    Rule = "every succeeded run was answered with 2xx by the witness"
	NeverEarly     Rule = "no request before its time"
	OneFirst       Rule = "at most one first attempt per run"
	FencesGrow     Rule = "fencing tokens grow"
	NoOverlap      Rule = "jobs that must not overlap never do"
	NoWedge        Rule = "nothing due is left waiting"
	NothingLeft    Rule = "nothing stays in ready, claims or a gate at rest"
	RequestsKnown  Rule = "every request belongs to a run and to an attempt of it, and says so"
	DeadAreListed  Rule = "every dead run, and no other, has a dead letter"
	AtMostOnce     Rule = "runs of jobs with delivery at_most_once are seen at most once"
	TenantsAddUp   Rule = "every run belongs to the tenant of its job"
	ExactlyOnce    Rule = "every attempt was sent exactly once"
	NothingFailed  Rule = "every run succeeded at the first attempt"
	RequestsHeader Rule = "requests carry what the run says"
	StepsInOrder   Rule = "every step of a workflow is settled once, after those before it"
	FeedIsWhole    Rule = "the feed of changes has the runs that have ended, and no others"
	DeadWereAsked  Rule = "no run is dead as unreachable unless its host was asked since it was due"
)

// Violation is a rule that was broken, and where.
type Violation struct {
	Rule   Rule
	Detail string
}

func (v Violation) String() string { return string(v.Rule) + ": " + v.Detail }

// Conditions say what a check may assume beyond the rules that always hold.
type Conditions struct {
	DefaultJitter time.Duration // the replicas' --default-jitter
	// Settle is how long a slot must have been due before Facts.Now for the check to expect its run.
	Settle time.Duration
	// SentOnce means that nothing failed between the replicas, the witness and the database. So the witness saw each
	// attempt on record exactly once.
	SentOnce bool
	// Frozen lists the periods in which a replica was frozen, each with some time after it. A frozen replica cannot close
	// its requests, nor know that others have taken over. Jobs that must not overlap are promised not to among living
	// replicas only.
	Frozen []Span
	// ClockSteps means that the database's clock was stepped. So it cannot be compared with the witness's clock. Creation
	// and claims are still checked, by the database's clock alone.
	ClockSteps bool
	// AllSucceed means that no target misbehaved either.
	AllSucceed bool
}

// Span is the time from From to To, without To.
type Span struct{ From, To time.Time }

// frozenAt reports whether a replica was frozen at t, or had just been.
func (c Conditions) frozenAt(t time.Time) bool { return during(c.Frozen, t) }

func during(spans []Span, t time.Time) bool {
	return slices.ContainsFunc(spans, func(s Span) bool { return !t.Before(s.From) && t.Before(s.To) })
}

// perRule is how many violations of one rule Check lists. It only counts the rest.
const perRule = 8

// Check returns the violations. The same facts give the same violations. It lists a few violations of each rule and
// counts the rest.
func Check(f Facts, c Conditions) []Violation {
	k := newCheck(f, c)
	k.slots()
	k.ends()
	k.feed()
	k.unreachable()
	k.requests()
	k.fences()
	k.overlaps()
	k.workflows()
	k.rest()
	return k.violations()
}

// check is the state of one check.
type check struct {
	Facts
	Conditions
	found map[Rule][]string

	jobs     map[uuid.UUID]*Job
	runs     map[uuid.UUID]*Run
	byJob    map[uuid.UUID][]*Run     // without steps; ordered by run id, which is the order of their slots
	attempts map[uuid.UUID][]*Attempt // by run
	seen     map[uuid.UUID][]*Request // by run, in the order of arrival
}

func newCheck(f Facts, c Conditions) *check {
	k := &check{
		Facts: f, Conditions: c, found: map[Rule][]string{}, jobs: map[uuid.UUID]*Job{}, runs: map[uuid.UUID]*Run{},
		byJob: map[uuid.UUID][]*Run{}, attempts: map[uuid.UUID][]*Attempt{}, seen: map[uuid.UUID][]*Request{},
	}
	for i := range f.Jobs {
		k.jobs[f.Jobs[i].ID] = &f.Jobs[i]
	}
	for i := range f.Runs {
		r := &f.Runs[i]
		k.runs[r.ID] = r
		if r.Step == "" {
			k.byJob[r.Job] = append(k.byJob[r.Job], r)
		}
	}
	for i := range f.Attempts {
		a := &f.Attempts[i]
		k.attempts[a.Run] = append(k.attempts[a.Run], a)
	}
	for i := range f.Requests {
		if r := &f.Requests[i]; r.Trigger != "notify" { // a notice is no run
			k.seen[r.Run] = append(k.seen[r.Run], r)
		}
	}
	return k
}

func (k *check) fail(rule Rule, format string, args ...any) {
	k.found[rule] = append(k.found[rule], fmt.Sprintf(format, args...))
}

// failRun is fail for what a run has done.
func (k *check) failRun(rule Rule, r *Run, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	k.fail(rule, "job %s: run %s of %s %s", k.name(r.Job), r.ID, clock(r.ScheduledFor), what)
}

func (k *check) violations() []Violation {
	var all []Violation
	for rule, details := range k.found {
		for _, d := range details[:min(len(details), perRule)] {
			all = append(all, Violation{rule, d})
		}
		if more := len(details) - perRule; more > 0 {
			all = append(all, Violation{rule, fmt.Sprintf("… and %d more", more)})
		}
	}
	slices.SortStableFunc(all, func(a, b Violation) int { return cmp.Compare(a.Rule, b.Rule) })
	return all
}

// count returns how many of all there are that are so.
func count[T any](all []T, so func(T) bool) (n int) {
	for _, one := range all {
		if so(one) {
			n++
		}
	}
	return n
}

// name returns the name of a job.
func (k *check) name(job uuid.UUID) string {
	if j := k.jobs[job]; j != nil {
		return j.Name
	}
	return job.String()
}

// clock formats an instant for violations.
func clock(t time.Time) string { return t.UTC().Format("15:04:05.000000") }

// clockError is how wrong a replica's estimate of the database's clock may be: one round trip.
const clockError = 50 * time.Millisecond
