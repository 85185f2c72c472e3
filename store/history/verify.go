package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/cron"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/days"
	"punctual/store/freeze"
	"punctual/store/pg"
	"punctual/store/runs"
)

// VerifyOptions says what to verify.
type VerifyOptions struct {
	From, To time.Time // slots from From to To, both included; To is at most now
	Tenant   string    // empty: all tenants
	Job      string    // id or name, also of a deleted job; empty: all jobs
	// Grace is how long a due slot may wait for its claim, and how long a run may be held by no replica, before it is
	// reported. 0: a minute.
	Grace time.Duration

	Report   func(Violation) error // called for each violation, in the order of the jobs' ids
	Progress func(VerifySummary)   // called now and then; may be nil
}

// ViolationKind says what is wrong. The list is closed.
type ViolationKind string

// The kinds of violations.
const (
	ViolationMissing    ViolationKind = "missing"      // a slot, or an event's subscriber, without run or skip
	ViolationDouble     ViolationKind = "double"       // several rows cover one slot, or a claimed dated run is pending
	ViolationOverlap    ViolationKind = "overlap"      // two skips cover some of the same slots
	ViolationCount      ViolationKind = "count"        // a skip's count differs from the number of slots it covers
	ViolationPhantom    ViolationKind = "phantom"      // a run or skip that nothing explains, or a dated run of no job
	ViolationUnended    ViolationKind = "unended"      // a run that has not ended and that no replica holds
	ViolationOverdue    ViolationKind = "overdue"      // slots, dated runs or fan-outs that are due and not taken up
	ViolationReport     ViolationKind = "report"       // a target's report that no replica has applied
	ViolationChain      ViolationKind = "chain"        // an end that triggered too little or too much
	ViolationLimit      ViolationKind = "limit"        // a limit with too many holders or starts, or with needless waits
	ViolationWorkflow   ViolationKind = "workflow"     // a step or a workflow that stands still
	ViolationAside      ViolationKind = "set_aside"    // what fails by itself, and so was set aside
	ViolationEarly      ViolationKind = "early"        // a run that began before it was due
	ViolationTogether   ViolationKind = "together"     // two runs at once of a job whose runs must not overlap
	ViolationContrary   ViolationKind = "contrary"     // records that contradict each other
	ViolationHeld       ViolationKind = "held"         // a gate or a limit that a run holds which has ended
	ViolationFeed       ViolationKind = "feed"         // the feed of changes lacks a run that has ended, or has another
	ViolationUnreadable ViolationKind = "unverifiable" // a job whose definition this binary cannot read
)

// Violation is one thing that is wrong.
type Violation struct {
	Kind   ViolationKind `json:"kind"`
	Tenant string        `json:"tenant"`
	Job    string        `json:"job"` // name; empty if there is no such job
	JobID  uuid.UUID     `json:"job_id"`
	Slot   *time.Time    `json:"slot,omitempty"` // the slot, or the first of several
	Last   *time.Time    `json:"last,omitempty"` // the last of several
	Count  int           `json:"count,omitempty"`
	Runs   []uuid.UUID   `json:"runs,omitempty"` // the rows concerned
	Detail string        `json:"detail"`         // for people
}

// VerifySummary counts what was verified.
type VerifySummary struct {
	From         time.Time  `json:"from"` // as verified: without the history that retention has dropped
	To           time.Time  `json:"to"`
	AsOf         *time.Time `json:"as_of,omitempty"` // of what was read, if there is a standby to read from
	JobsInAll    int        `json:"-"`               // for the progress
	Jobs         int        `json:"jobs"`
	Slots        int        `json:"slots"` // slots that had to have a run or skip, and were checked
	Runs         int        `json:"runs"`
	Skips        int        `json:"skips"`
	Waiting      int        `json:"waiting"`       // slots that rightly have no run or skip yet
	Frozen       int        `json:"frozen"`        // those of Waiting that are due but frozen, with the deployment or their tenant
	NotCheckable int        `json:"not_checkable"` // slots that the history says nothing about
	Violations   int        `json:"violations"`

	Kinds map[ViolationKind]int `json:"kinds,omitempty"`
	Notes []string              `json:"notes,omitempty"` // for people: how far the result can be relied on
}

// JobsPerPage is how many jobs one read-only snapshot covers. It is enough to share the round trips among them, and few
// enough for the snapshot to last only seconds: an old snapshot keeps vacuum from its work.
const JobsPerPage = 200

// defaultGrace is four times as long as recovery from a lost replica takes.
const defaultGrace = time.Minute

// EmptyWindowError says that there is nothing to verify in a window: it is in the future, or before what is kept.
type EmptyWindowError struct{ From, To time.Time }

func (e *EmptyWindowError) Error() string {
	from, to := e.From.UTC().Format(time.RFC3339), e.To.UTC().Format(time.RFC3339)
	if time.Until(e.From) > -time.Minute {
		return fmt.Sprintf("the window begins in the future: at %s, and now is %s", from, to)
	}
	return fmt.Sprintf("the window ends at %s, and runs from before %s are no longer kept", to, from)
}

// Verify works out from the history of the definitions which slots the jobs had, and compares them with the recorded
// runs and skips. It only reads, one page of jobs after another, each in its own snapshot. It does not collect slots or
// rows: in memory it keeps only the histories of one page.
func (h *History) Verify(ctx context.Context, o VerifyOptions) (VerifySummary, error) {
	if o.Grace == 0 {
		o.Grace = defaultGrace
	}
	v := verification{history: h, options: o, summary: VerifySummary{
		From: o.From.UTC(), To: o.To.UTC(), Kinds: map[ViolationKind]int{},
	}}
	reading := new(pg.Reading)
	ctx = reading.Within(ctx)
	if err := v.read(ctx, v.prepare); err != nil {
		if empty, is := errors.AsType[*EmptyWindowError](err); is {
			return v.summary, empty
		}
		return v.summary, fmt.Errorf("preparing to verify: %w", err)
	}
	for last := false; !last; {
		err := v.read(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
			last, err = v.page(ctx, tx)
			return err
		})
		if err != nil {
			return v.summary, fmt.Errorf("verifying the jobs after %s: %w", v.after, err)
		}
		if o.Progress != nil {
			o.Progress(v.summary)
		}
	}
	for _, look := range []func(context.Context, pgx.Tx) error{
		v.reports, v.dated, v.chains, v.events, v.workflows, v.starts, v.holders, v.gates, v.feed, v.setAside,
	} {
		if err := v.read(ctx, look); err != nil {
			return v.summary, err
		}
	}
	if err := v.records(ctx); err != nil {
		return v.summary, err
	}
	if err := v.limits(ctx); err != nil {
		return v.summary, err
	}
	if asOf := reading.AsOf(); !asOf.IsZero() {
		v.summary.AsOf = &asOf
		v.note("The history was read as of %s.", asOf.Format(time.RFC3339))
	}
	return v.summary, v.noteFreezes(ctx)
}

// verification is the state of one Verify.
type verification struct {
	history  *History
	options  VerifyOptions
	tenant   int32     // 0: all tenants
	only     uuid.UUID // uuid.Nil: all jobs, or those with the name
	name     string    // empty: all names
	after    uuid.UUID // the last job of the page before
	summary  VerifySummary
	aside    *[]Violation // where violations go that the standby shows; nil: they are reported
	failed   error        // why the last report failed; nothing is reported after it
	unopened bool         // it is noted that bodies of events cannot be read
}

// mostAside bounds the violations that are put aside. The primary reports more than that one by one.
const mostAside = 10_000

var errTooMany = errors.New("too many violations to put aside")

// read looks at one snapshot, of the standby if there is one. What a look there has found counts only once the look is
// over, as recovery may cancel it. Then all of it is repeated.
func (v *verification) read(ctx context.Context, look func(context.Context, pgx.Tx) error) error {
	before := *v
	before.summary.Kinds, before.summary.Notes = maps.Clone(v.summary.Kinds), slices.Clone(v.summary.Notes)
	found, err := pg.PastSnapshot(ctx, v.history.db, pg.Everybody,
		func(ctx context.Context, tx pg.Snapshot) (found []Violation, err error) {
			*v = before
			v.summary.Kinds, v.summary.Notes = maps.Clone(before.summary.Kinds), slices.Clone(before.summary.Notes)
			if tx.Standby {
				v.aside = &found
			}
			err = look(ctx, tx)
			return found, cmp.Or(v.failed, err)
		})
	v.aside = nil
	for _, one := range found {
		if err == nil && v.options.Report != nil {
			err = v.options.Report(one)
		}
	}
	return err
}

const verifyFacts = `
SELECT ` + pg.Now + `, (SELECT zone_data FROM punctual.deployment),
       (SELECT count(*) FROM punctual.jobs j
        WHERE ($1 = 0 OR j.tenant = $1) AND ($2::uuid IS NULL OR j.id = $2) AND ($3 = '' OR j.name = $3)),
       ` + days.KeptSince

func (v *verification) prepare(ctx context.Context, tx pgx.Tx) error {
	if id, ok := pg.ParseID(v.options.Job); ok {
		v.only = id
	} else {
		v.name = v.options.Job
	}
	if v.options.Tenant != "" {
		// A deleted tenant counts only if no other tenant has its name by now.
		err := tx.QueryRow(ctx, `
			SELECT id FROM punctual.tenants WHERE name = $1
			ORDER BY deleted_at DESC NULLS FIRST LIMIT 1`, v.options.Tenant).Scan(&v.tenant)
		if err != nil {
			return pg.Found(err, "tenant %q", v.options.Tenant)
		}
	}
	var now time.Time
	var kept *time.Time
	var zones string
	if err := tx.QueryRow(ctx, verifyFacts, v.tenant, pg.OrNull(v.only), v.name).
		Scan(&now, &zones, &v.summary.JobsInAll, &kept); err != nil {
		return err
	}
	if v.summary.JobsInAll == 0 && v.options.Job != "" {
		return fmt.Errorf("job %q: %w", v.options.Job, pg.ErrNotFound)
	}
	v.summary.To = jobspec.Earlier(v.summary.To, now)
	if kept != nil && v.summary.From.Before(*kept) {
		v.summary.From = *kept
		v.note("The runs before %s are no longer kept.", kept.Format(time.RFC3339))
	}
	if mine := cron.Zones().Release; zones != "" && zones != mine {
		v.note(
			"The replicas use time zone data %s, but this binary uses %s: slots of zones whose rules differ may be reported wrongly.",
			zones, mine)
	}
	if err := v.noteWaiting(ctx, tx); err != nil {
		return err
	}
	if !v.summary.From.Before(v.summary.To) {
		return &EmptyWindowError{From: v.summary.From, To: v.summary.To}
	}
	return nil
}

// noteWaiting notes what runs wait for: a record without violations does not mean that all is well.
func (v *verification) noteWaiting(ctx context.Context, tx pgx.Tx) error {
	rows := pg.Query(ctx, tx, `
		SELECT waits_on, count(*) FROM punctual.ready
		WHERE waits = 'host' AND ($1 = 0 OR tenant = $1)
		GROUP BY waits_on ORDER BY 2 DESC, 1 LIMIT 10`, v.tenant)
	err := pg.Each2(rows, func(by string, n int) { v.note("%s for %s.", waiting(n), by) })
	return pg.Wrap("reading what runs wait for", err)
}

func waiting(runs int) string {
	if runs == 1 {
		return "1 run waits"
	}
	return fmt.Sprintf("%d runs wait", runs)
}

// mostFrozenNoted is how many frozen tenants a report names at most. If there are more, it gives only their number.
const mostFrozenNoted = 5

// noteFreezes notes whether the deployment is frozen, and which of the verified tenants are.
func (v *verification) noteFreezes(ctx context.Context) error {
	freezes, err := freeze.Read(ctx, v.history.db, v.tenant)
	if err != nil {
		return err
	}
	if freezes.Deployment != nil {
		v.note("The deployment is %s: due slots wait for `punctual unfreeze` and are not violations.", freezes.Deployment)
	}
	if n := len(freezes.Tenants); n > mostFrozenNoted {
		v.note("%d tenants are frozen: their due slots wait for `punctual unfreeze --tenant` and are not violations.", n)
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(freezes.Tenants)) {
		v.note("The tenant %s is %s: its due slots wait for `punctual unfreeze --tenant %[1]s` and are not violations.",
			freezes.Names[id], freezes.Tenants[id])
	}
	return nil
}

// firstID returns an id below those of all runs in the window.
func (v *verification) firstID() uuid.UUID {
	return domain.FirstRunID(v.summary.From.Add(-runs.ClockSlack))
}

// unread notes, once, that bodies of events cannot be read.
func (v *verification) unread(why error) {
	if !v.unopened {
		v.unopened = true
		v.note("bodies of events were not compared with filters: %v", why)
	}
}

func (v *verification) note(format string, args ...any) {
	v.summary.Notes = append(v.summary.Notes, fmt.Sprintf(format, args...))
}

// page verifies the next jobs in the order of their ids. last says that there are no more jobs.
func (v *verification) page(ctx context.Context, tx pgx.Tx) (last bool, err error) {
	// Retention may have removed a day since the page before.
	var kept *time.Time
	if err := tx.QueryRow(ctx, `SELECT `+days.KeptSince).Scan(&kept); err != nil {
		return false, fmt.Errorf("looking for the oldest day: %w", err)
	}
	if kept != nil && v.summary.From.Before(*kept) {
		v.summary.From = kept.UTC()
	}
	jobs, now, err := v.readJobs(ctx, tx)
	if err != nil {
		return false, err
	}
	if err := v.readVersions(ctx, tx, jobs); err != nil {
		return false, err
	}
	if err := readPolicies(ctx, tx, jobs); err != nil {
		return false, err
	}
	if err := v.together(ctx, tx, jobs); err != nil {
		return false, err
	}
	last = len(jobs) < JobsPerPage
	if len(jobs) > 0 || !v.filtered() {
		if err := v.compare(ctx, tx, jobs, now, last); err != nil {
			return false, err
		}
	}
	if len(jobs) > 0 {
		v.after = jobs[len(jobs)-1].id
	}
	return last, nil
}

func (v *verification) filtered() bool { return v.tenant != 0 || v.options.Job != "" }

// verifyJob is a job of a page.
type verifyJob struct {
	id           uuid.UUID
	tenant, name string
	enabled      bool
	owner        int32
	frozen       bool      // its due slots rightly wait
	over         time.Time // when a pause ended that no replica has ended yet; zero: there is none
	history      domain.History
	policies     []policy // of its versions, in order
	contrary     string   // what contradicts itself about the job; empty: nothing
	broken       error    // why its versions cannot be read
}

func (v *verification) readJobs(ctx context.Context, tx pgx.Tx) (jobs []*verifyJob, now time.Time, err error) {
	rows := pg.Query(ctx, tx, `
		SELECT j.id, t.name, j.name, j.tenant, s.scheduled_for, punctual.job_state(j, s) = 'active', `+contraryJob+`,
		       punctual.frozen_since(j.tenant) IS NOT NULL,
		       CASE WHEN j.state = 'paused' AND j.paused_until <= `+pg.Now+` THEN j.paused_until END, `+pg.Now+`
		FROM punctual.jobs j JOIN punctual.tenants t ON t.id = j.tenant LEFT JOIN punctual.schedules s ON s.job_id = j.id
		WHERE j.id > $1 AND ($2 = 0 OR j.tenant = $2) AND ($3::uuid IS NULL OR j.id = $3) AND ($4 = '' OR j.name = $4)
		ORDER BY j.id LIMIT $5`, v.after, v.tenant, pg.OrNull(v.only), v.name, JobsPerPage)
	jobs, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (*verifyJob, error) {
		var j verifyJob
		var next, over *time.Time
		err := row.Scan(&j.id, &j.tenant, &j.name, &j.owner, &next, &j.enabled, &j.contrary, &j.frozen, &over, &now)
		if over != nil {
			j.enabled, j.over = true, over.UTC()
		}
		j.history = domain.History{Job: j.id, DefaultJitter: v.history.defaultJitter, Next: pg.OrZero(next).UTC()}
		return &j, err
	})
	return jobs, now.UTC(), pg.Wrap("reading jobs", err)
}

// readVersions reads the histories of a page. As it goes it drops the versions that do not affect the window's slots.
func (v *verification) readVersions(ctx context.Context, tx pgx.Tx, jobs []*verifyJob) error {
	ids := pg.Column(jobs, func(j *verifyJob) uuid.UUID { return j.id })
	i := 0
	return eachVersion(ctx, tx, ids, func(id uuid.UUID, version domain.Version, broken error) {
		for jobs[i].id != id {
			i++
		}
		h := &jobs[i].history
		h.Versions = append(h.Versions, version)
		if len(h.Versions)%100 == 0 {
			h.Trim(v.summary.From)
		}
		if broken != nil {
			jobs[i].broken = broken
		}
	})
}
