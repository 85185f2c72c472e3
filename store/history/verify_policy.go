package history

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/jobspec"
	"punctual/store/pg"
)

// policy is what versions of a job, from the given one up to the next policy, say about how its runs begin.
type policy struct {
	version   int32
	from      time.Time
	gated     bool // its runs must not overlap
	tolerance time.Duration
}

// A definition may be a megabyte; few fields of it decide. One that cannot be read has been reported.
const selectPolicies = `
SELECT v.job_id, v.version, v.valid_from, coalesce(v.definition ->> 'concurrency_policy', ''),
       coalesce(v.definition ->> 'completion', ''), v.definition -> 'steps' IS NOT NULL,
       coalesce(v.definition #>> '{schedule,cron}', v.definition #>> '{schedule,every}',
                v.definition #>> '{schedule,at}', v.definition #>> '{schedule,delay}') IS NOT NULL,
       coalesce(v.definition #>> '{missed,tolerance}', '')
FROM punctual.job_versions v
WHERE v.job_id = ANY($1::uuid[])
ORDER BY v.job_id, v.version`

// readPolicies reads the policies of a page's jobs. Versions with the same one are kept as one.
func readPolicies(ctx context.Context, q pg.Querier, jobs []*verifyJob) error {
	rows := pg.Query(ctx, q, selectPolicies, pg.Column(jobs, func(j *verifyJob) uuid.UUID { return j.id }))
	var id uuid.UUID
	var p policy
	var d jobspec.Definition
	var steps, slots bool
	var tolerance string
	i := 0
	err := pg.Each(rows, []any{&id, &p.version, &p.from, &d.ConcurrencyPolicy, &d.Completion, &steps, &slots, &tolerance},
		func() {
			for jobs[i].id != id {
				i++
			}
			made := d
			if steps {
				made.Steps = make([]jobspec.Step, 1)
			}
			if slots {
				made.Schedule.Every = jobspec.DurationOf(time.Hour)
			}
			if tolerance != "" {
				_ = made.Missed.Tolerance.UnmarshalText([]byte(tolerance)) // never fails
			}
			made = made.WithDefaults()
			p.gated, p.tolerance = made.ConcurrencyPolicy != jobspec.PolicyAllow, made.Missed.Tolerance.Value()
			all := &jobs[i].policies
			if last := len(*all) - 1; last < 0 || (*all)[last].gated != p.gated || (*all)[last].tolerance != p.tolerance {
				*all = append(*all, p)
			}
		})
	return pg.Wrap("reading the policies of jobs", err)
}

// policyOf returns the policy of a version; the zero value: none is known.
func (j *verifyJob) policyOf(version int32) (p policy) {
	i, found := slices.BinarySearchFunc(j.policies, version, func(p policy, n int32) int { return int(p.version - n) })
	if !found {
		i--
	}
	if i >= 0 {
		p = j.policies[i]
	}
	return p
}

// gatedSpan are versions of a job under which no two of its runs may be open at once.
type gatedSpan struct {
	job         uuid.UUID
	first, last int32
	until       *time.Time // when a version without a gate followed; nil: none did
}

var columnsOfSpan = pg.Columns[gatedSpan]{
	pg.Col("job", "uuid", func(s gatedSpan) uuid.UUID { return s.job }),
	pg.Col("first", "integer", func(s gatedSpan) int32 { return s.first }),
	pg.Col("last", "integer", func(s gatedSpan) int32 { return s.last }),
	pg.Col("until", "timestamptz", func(s gatedSpan) *time.Time { return s.until }),
}

// gatedSpans returns the spans of a job.
func (j *verifyJob) gatedSpans() (spans []gatedSpan) {
	open := false
	for _, p := range j.policies {
		switch {
		case p.gated && !open:
			spans = append(spans, gatedSpan{job: j.id, first: p.version, last: math.MaxInt32})
		case !p.gated && open:
			last := &spans[len(spans)-1]
			last.last, last.until = p.version-1, new(p.from)
		}
		open = p.gated
	}
	return spans
}
