package history

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/days"
	"punctual/store/links"
	"punctual/store/pg"
	"punctual/store/runs"
)

// chainedAround is how far from the instant a run that another run or an event caused is told of, and how long before
// it the end of an upstream run that caused none.
const (
	chainedAround  = time.Minute
	upstreamBefore = 24 * time.Hour
)

// findChained adds what the slot's run has triggered, and why a run of the job was triggered at about the instant, or
// was not.
func (e *explaining) findChained(ctx context.Context) error {
	if e.Run != nil {
		if err := e.findTriggered(ctx, e.Run); err != nil {
			return err
		}
	}
	from, to := domain.FirstRunID(e.At.Add(-chainedAround)), domain.FirstRunID(e.At.Add(chainedAround))
	caused, err := runs.Query(ctx, e.q, `
		WHERE r.job_id = $1 AND r.id >= $2 AND r.id < $3 AND r.trigger IN ('chain', 'event')
		ORDER BY abs(extract(epoch FROM r.scheduled_for - $4::timestamptz)), r.id LIMIT 1`, e.job, from, to, e.At)
	if err != nil {
		return err
	}
	if len(caused) > 0 {
		r := &caused[0]
		by, err := e.causeOf(ctx, r)
		if err != nil {
			return err
		}
		e.Text += fmt.Sprintf(" Run %s was triggered because %s; it %s.", r.ID, by, ending(r))
		return e.findTriggered(ctx, r)
	}
	if e.Run != nil {
		return nil
	}
	return e.findUntriggered(ctx)
}

// causeOf says what caused a run.
func (e *explaining) causeOf(ctx context.Context, r *runs.Run) (string, error) {
	if r.Trigger != domain.TriggerChain {
		return "event " + r.CausedBy.String() + " was emitted", nil
	}
	found, err := runs.Query(ctx, e.q, ` WHERE r.id = $1`, *r.CausedBy)
	if err != nil || len(found) == 0 {
		return "run " + r.CausedBy.String() + " ended", err
	}
	return ended(&found[0]), nil
}

// findTriggered adds which runs the end of a run has triggered.
func (e *explaining) findTriggered(ctx context.Context, r *runs.Run) error {
	if r.FinishedAt == nil {
		return nil
	}
	at := *r.FinishedAt
	made, err := runs.Query(ctx, e.q, ` WHERE r.caused_by = $1 AND r.id >= $2 AND r.id < $3 ORDER BY j.name LIMIT $4`,
		r.ID, domain.FirstRunID(at), domain.FirstRunID(at.Add(2*time.Millisecond)), jobspec.MaxLinks)
	if err != nil || len(made) == 0 {
		return err
	}
	said := pg.Column(made, func(m runs.Run) string {
		return fmt.Sprintf("job %s (run %s, which %s)", m.Job, m.ID, ending(&m))
	})
	e.Text += " Its end triggered " + strings.Join(said, ", ") + "."
	return nil
}

// upstream is the key of the runs of a job that is a row w.
var upstream = days.Job(`w.id`)

// findUntriggered says why no run was triggered: of the jobs that trigger this one, the last end before the instant was
// another one.
func (e *explaining) findUntriggered(ctx context.Context) error {
	by, err := links.Upstreams(ctx, e.q, e.job)
	if err != nil || len(by[e.job]) == 0 {
		return err
	}
	when := map[uuid.UUID][]jobspec.LinkWhen{}
	for _, u := range by[e.job] {
		when[u.ID] = append(when[u.ID], u.When)
	}
	found, err := runs.Query(ctx, e.q, `
		WHERE r.id IN (
		    SELECT n.id FROM unnest($1::uuid[]) w(id)
		    CROSS JOIN LATERAL (
		        SELECT n.id FROM punctual.runs n
		        WHERE `+upstream.From(`n`, `$2::uuid`)+` AND `+upstream.Below(`n`, `$3::uuid`)+` AND n.id >= $2 AND n.id < $3
		          AND (n.finished_at IS NULL OR n.finished_at <= $4)`+upstream.Order(`n`, days.NewestFirst)+` LIMIT 1) n)
		  AND r.id >= $2 AND r.id < $3
		ORDER BY r.id DESC LIMIT 1`, slices.Collect(maps.Keys(when)), domain.FirstRunID(e.At.Add(-upstreamBefore)),
		domain.FirstRunID(e.At.Add(chainedAround)), e.At.Add(chainedAround))
	if err != nil || len(found) == 0 {
		return err
	}
	r := &found[0]
	fires := slices.ContainsFunc(when[r.JobID], r.Status.Triggers)
	switch {
	case r.FinishedAt == nil:
		e.Text += fmt.Sprintf(" It is triggered when a run of job %s ends: run %s is %s.", r.Job, r.ID, r.Status)
	case !fires:
		e.Text += fmt.Sprintf(" It was not triggered, because %s.", ended(r))
	}
	return nil
}

// ended says how a run ended, with its job.
func ended(r *runs.Run) string {
	return fmt.Sprintf("run %s of job %s %s", r.ID, r.Job, ending(r))
}

// ending says how a run ended, or its status.
func ending(r *runs.Run) string {
	at := ""
	if r.FinishedAt != nil {
		at = " at " + pg.Stamp(*r.FinishedAt)
	}
	switch r.Status {
	case domain.StatusSucceeded:
		return "succeeded" + at
	case domain.StatusDead:
		return "died" + at + ": " + why(r)
	case domain.StatusSkipped, domain.StatusCancelled:
		return "was " + string(r.Status) + at + ": " + why(r)
	}
	return "is " + string(r.Status)
}
