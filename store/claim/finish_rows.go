package claim

import (
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/pg"
	"punctual/store/seal"
)

// ending is an outcome of an unsuccessful attempt, and what it means.
type ending struct {
	*domain.Outcome
	end domain.End
}

// The rows of finishSucceeded, finishAccepted and finishOthers. The statements name the first column $1 too. The
// columns of acceptances begin as those of successes do.
var (
	successes = pg.Columns[*domain.Outcome]{
		pg.Col("id", "uuid", func(o *domain.Outcome) uuid.UUID { return o.RunID }),
		pg.Col("fence", "bigint", func(o *domain.Outcome) int64 { return o.Fence }),
		pg.Col("started_at", "timestamptz", func(o *domain.Outcome) time.Time { return o.StartedAt }),
		pg.Col("finished_at", "timestamptz", endedAt),
		pg.Col("http_status", "smallint", func(o *domain.Outcome) int16 { return int16(o.HTTPStatus) }),
	}
	acceptances = append(successes[:3:3],
		pg.Col("http_status", "smallint", func(o *domain.Outcome) int16 { return int16(o.HTTPStatus) }),
		pg.Col("silence", "interval", func(o *domain.Outcome) time.Duration { return o.RetryIn }),
		pg.Col("approval", "bool", func(o *domain.Outcome) bool { return o.Job.Approval != nil }))
	endings = pg.Columns[*ending]{
		pg.Col("id", "uuid", func(o *ending) uuid.UUID { return o.RunID }),
		pg.Col("fence", "bigint", func(o *ending) int64 { return o.Fence }),
		pg.Col("started_at", "timestamptz", func(o *ending) *time.Time { return given(&o.StartedAt, !o.StartedAt.IsZero()) }),
		pg.Col("finished_at", "timestamptz", func(o *ending) time.Time { return endedAt(o.Outcome) }),
		pg.Col("http_status", "smallint", func(o *ending) *int16 { return pg.OrNull(int16(o.HTTPStatus)) }),
		pg.Col("status", "text", func(o *ending) string { return string(o.end.Status) }),
		pg.Col("reason", "text", func(o *ending) *string { return given((*string)(&o.Reason), o.Reason != "") }),
		pg.Col("error", "text", (*ending).said),
		pg.Col("outcome", "text", func(o *ending) *string { return given((*string)(&o.end.Attempt), o.end.Attempt != "") }),
		pg.Col("response", "text", func(o *ending) *seal.Text { return pg.OrNull(seal.Text(pg.Storable(o.Response))) }),
		pg.Col("retry_in", "interval", func(o *ending) time.Duration { return o.RetryIn }),
		pg.Col("final", "bool", func(o *ending) bool { return o.end.Status.Final() }),
		pg.Col("counts", "bool", func(o *ending) bool { return o.end.Counts }),
		pg.Col("number", "smallint", func(o *ending) int16 { return int16(o.end.Number) }),
		pg.Col("held_by", "text", func(o *ending) *string { return pg.OrNull(o.held().By) }),
		pg.Col("held_since", "timestamptz", func(o *ending) *time.Time { return pg.OrNull(o.held().Since) }),
		pg.Col("held_until", "timestamptz", func(o *ending) *time.Time { return pg.OrNull(o.held().Until) }),
		pg.Col("headers", "jsonb", func(o *ending) seal.JSON { return headersJSON(o.Headers) }),
		pg.Col("truncated", "bool", func(o *ending) bool { return o.Truncated }),
		pg.Col("job", "uuid", func(o *ending) *uuid.UUID { return given(&o.Job.ID, !o.end.Status.Final()) }),
	}
)

// said is the error. What a target has answered or reported may be in it.
func (o *ending) said() *seal.Quoting {
	quotes := o.HTTPStatus != 0 || o.Reason == domain.ReasonFailed || o.Reason == domain.ReasonExpired ||
		o.Step != "" || o.Job.IsWorkflow()
	return pg.OrNull(seal.Quoting{Text: pg.Storable(o.Error), Quotes: quotes && o.Error != ""})
}

// held returns what holds the run back; the zero value: nothing does.
func (o *ending) held() (h domain.Held) {
	if o.Verdict == domain.Hold {
		h = *o.Held
	}
	return h
}

// endedAt is not before the start, even when the database's clock was set back meanwhile.
func endedAt(o *domain.Outcome) time.Time { return jobspec.Later(o.FinishedAt, o.StartedAt) }

// given returns a pointer if there is a value, and nil otherwise.
func given[T any](value *T, is bool) *T {
	if is {
		return value
	}
	return nil
}
