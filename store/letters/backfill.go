package letters

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/cron"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/days"
	"punctual/store/definitions"
	"punctual/store/jobs"
	"punctual/store/names"
	"punctual/store/pg"
)

// MostBackfilled is the largest number of slots in one backfill. To find that many takes half a second to two.
const MostBackfilled = 100_000

// BackfillRequest asks for a run of each past slot of a job that has none.
type BackfillRequest struct {
	Job string // id or name
	// When gives From and To once the job's zone is known; nil: they are given.
	When         func(zone *time.Location) (from, to time.Time)
	From, To     time.Time // slots from From, inclusive, to To, exclusive
	Rerun        bool      // slots that have a run get another
	Chain        bool      // their ends trigger other jobs
	OneAtATime   bool      // each run is made when the one before has ended, whatever the job's concurrency policy
	MaxPerSecond int       // 0: no limit
	Note         string
}

// BackfillPlan holds the slots of a backfill, by the schedule that the job had at the time of the request.
type BackfillPlan struct {
	BackfillRequest
	tenant int32
	job    definitions.Version
	name   string // of the job
	zone   *time.Location
	slots  []time.Time
}

// Zone returns the zone of the job's schedule, which is UTC if it has none.
func (p BackfillPlan) Zone() *time.Location { return p.zone }

// Matched returns how many slots there are.
func (p BackfillPlan) Matched() int { return len(p.slots) }

// PlanBackfill finds the slots of a backfill. It locks and writes nothing. The slots are those of the present schedule,
// even from before the job was created. Slots that the schedule has not passed yet are left out, as they run by
// themselves: that includes slots that are due and wait, such as after an outage. PlanBackfill refuses a request that
// cannot be met, and blames its fields job, from and to. It returns ErrNotFound for a job that does not exist or was
// deleted.
func (l *Letters) PlanBackfill(ctx context.Context, tenant int32, r BackfillRequest) (BackfillPlan, error) {
	q := l.db.Callers.Reader(tenant)
	id, err := names.Find(ctx, q, tenant, r.Job)
	if err != nil {
		return BackfillPlan{}, err
	}
	job, err := jobs.Read(ctx, q, tenant, id)
	if err != nil {
		return BackfillPlan{}, err
	}
	now, earliest, err := l.reach(ctx, q, job.CreatedAt)
	if err != nil {
		return BackfillPlan{}, err
	}
	zone, err := cron.LoadZone(job.Definition.Schedule.Timezone)
	if err != nil {
		return BackfillPlan{}, fmt.Errorf("job %s version %d: %w", id, job.Version, err)
	}
	if r.When != nil {
		r.From, r.To = r.When(zone)
	}
	p := BackfillPlan{
		BackfillRequest: r, tenant: tenant, name: job.Definition.Name, zone: zone,
		job: definitions.Version{Job: id, Version: job.Version},
	}
	problems := r.problems(job.Definition.Schedule.Kind(), now, earliest)
	if len(problems) == 0 {
		if problems, err = p.walk(ctx, job, l.options.DefaultJitter, now); err != nil {
			return p, err
		}
	}
	if len(problems) > 0 {
		why := strings.Join(pg.Column(problems, jobspec.Problem.Error), "; ")
		return p, &jobspec.Refusal{Code: "invalid", Reason: why, Blames: problems}
	}
	return p, nil
}

// reach returns the present, and how far back the database knows which slots of a job have run. That is as far as it
// keeps runs that succeeded. For a job that is older than the instant since which runs have been kept, it is no further
// back than that instant.
func (l *Letters) reach(ctx context.Context, q pg.Querier, created time.Time) (now, earliest time.Time, err error) {
	var kept *time.Time
	if err := q.QueryRow(ctx, `SELECT clock_timestamp(), `+days.KeptSince).Scan(&now, &kept); err != nil {
		return now, earliest, fmt.Errorf("looking for the oldest day: %w", err)
	}
	earliest = now.Add(-l.options.Retention)
	if kept != nil && created.Before(*kept) && kept.After(earliest) {
		earliest = *kept
	}
	return now, earliest, nil
}

func (r BackfillRequest) problems(kind jobspec.Kind, now, earliest time.Time) []jobspec.Problem {
	var problems []jobspec.Problem
	add := func(field, format string, args ...any) {
		problems = append(problems, jobspec.Problem{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	if !kind.Recurring() {
		add("job", "%q has no past slots, as its schedule is neither cron nor every; trigger the job instead", r.Job)
	}
	if r.From.Before(earliest) {
		// In whole minutes, so that a person can type it and it is still right by then.
		add("from", "%s is further back than runs are kept: at the earliest %s",
			pg.Stamp(r.From), pg.Stamp(earliest.Add(time.Minute-1).Truncate(time.Minute)))
	}
	switch {
	case !r.From.Before(r.To):
		add("to", "%s is not after from, %s", pg.Stamp(r.To), pg.Stamp(r.From))
	case r.To.After(now):
		add("to", "%s is in the future: at the latest %s", pg.Stamp(r.To), pg.Stamp(now.Truncate(time.Second)))
	}
	return problems
}

// walk collects the slots, up to the schedule's next slot. Of a paused job that is the end of the pause, which may be
// over: the slots since then wait until the pause is ended.
func (p *BackfillPlan) walk(
	ctx context.Context, job jobs.Record, defaultJitter time.Duration, now time.Time,
) ([]jobspec.Problem, error) {
	timetable, err := jobspec.NewTimetable(job.ID, job.Definition.WithDefaults(), defaultJitter)
	if err != nil {
		return nil, fmt.Errorf("job %s version %d: %w", job.ID, job.Version, err)
	}
	until := p.To
	if next := cmp.Or(job.NextScheduledFor, job.PausedUntil); next != nil && next.Before(until) {
		until = *next
	}
	for at := range timetable.Between(p.From, until) {
		switch {
		case timetable.Due(at, nil).After(now):
			return nil, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case len(p.slots) == MostBackfilled:
			return []jobspec.Problem{{Field: "to", Message: fmt.Sprintf(
				"%s is too far from from: there are more than %d slots between; the latest end that fits is %s",
				pg.Stamp(p.To), MostBackfilled, pg.Stamp(at))}}, nil
		}
		p.slots = append(p.slots, at)
	}
	return nil, nil
}

// CountBackfill returns how many runs a backfill would make now.
func (l *Letters) CountBackfill(ctx context.Context, p BackfillPlan) (int, error) {
	n := len(p.slots)
	if p.Rerun || n == 0 {
		return n, nil
	}
	slots := make(map[uuid.UUID]bool, n)
	for _, at := range p.slots {
		slots[domain.SlotRunID(p.job.Job, at)] = true
	}
	search := days.Search{Index: days.All, Since: p.slots[0], Until: p.slots[n-1]}
	err := search.Forth(ctx, l.db.Callers.Reader(p.tenant), func(
		ctx context.Context, q pg.Querier, w days.Window,
	) (enough bool, err error) {
		var id uuid.UUID
		rows := pg.Query(ctx, q, `SELECT id FROM punctual.runs WHERE job_id = $1 AND `+w.On(`id`), p.job.Job)
		return false, pg.Each(rows, []any{&id}, func() {
			if slots[id] {
				n--
			}
		})
	})
	return n, pg.Wrap("counting the runs of slots", err)
}

// StartBackfill writes a backfill as an operation, which the replicas carry out.
func (w Operator) StartBackfill(ctx context.Context, p BackfillPlan) (Operation, error) {
	n := newOperation{
		Operation: Operation{
			Kind: OperationBackfill, JobID: &p.job.Job, MaxPerSecond: pg.OrNull(p.MaxPerSecond), Note: pg.OrNull(p.Note),
		},
		job: p.name, rerun: p.Rerun, lastSlot: &p.From,
	}
	if len(p.slots) > 0 {
		n.firstSlot, n.lastSlot = &p.slots[0], &p.slots[len(p.slots)-1]
	}
	request := backfillText{
		Job: p.job.Job, JobVersion: p.job.Version, From: p.From, To: p.To, Rerun: p.Rerun, Chain: p.Chain,
		Concurrency: ConcurrencyAllow,
	}
	if p.OneAtATime {
		request.Concurrency = ConcurrencyOneAtATime
	}
	return w.start(ctx, n, request, func(*pg.Tx, uuid.UUID) (matched int, err error) { return len(p.slots), nil })
}

// backfillText is a backfill's request as people find it in its row. The job's version decides the slots: an edit of
// the job during the backfill changes the requests that are sent, but not the slots.
type backfillText struct {
	Job        uuid.UUID `json:"job_id"`
	JobVersion int32     `json:"job_version"`
	From       time.Time `json:"from"`
	To         time.Time `json:"to"`
	Rerun      bool      `json:"rerun"`
	Chain      bool      `json:"chain,omitempty"`

	Concurrency string `json:"concurrency"`
}

// How the runs of a backfill may overlap.
const (
	ConcurrencyOneAtATime = "one_at_a_time"
	ConcurrencyAllow      = "allow" // as the job's concurrency policy has it
)
