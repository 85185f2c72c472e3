package httpapi

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"punctual/store/history"
	"punctual/store/pg"
	"punctual/store/runs"
)

// Explanation says what happened to a job at an instant.
type Explanation struct {
	At           time.Time       `json:"at" doc:"The instant asked about."`
	Slot         *time.Time      `json:"slot" doc:"The slot at that instant. Null: there is none."`
	Version      *int32          `json:"version" doc:"The job's version at that instant." example:"7"`
	Outcome      history.Outcome `json:"outcome" enum:"succeeded,dead,cancelled,in_progress,skipped,waiting,paused,upcoming,no_slot,before_created,completed,deleted,unknown,unaccounted" doc:"What happened to the slot. succeeded, dead, cancelled, in_progress: the state of its run. skipped: a recorded skip covers it, or its run was never sent. waiting: due and not claimed yet. paused: it did not run, because the job is paused now. upcoming: in the future. no_slot, before_created, completed, deleted: why there is no slot at that instant. unknown: the history does not show it, or is no longer kept. unaccounted: there is neither a run nor a skip, which is a defect." example:"succeeded"`
	Text         string          `json:"explanation" doc:"The outcome in a sentence."`
	Run          *runs.Run       `json:"run" doc:"The run of the slot, or the recorded skip that covers it."`
	Pause        *Pause          `json:"pause" doc:"The pause in force at that instant."`
	PreviousSlot *time.Time      `json:"previous_slot" doc:"The job's last slot before that instant."`
	NextSlot     *time.Time      `json:"next_slot" doc:"The job's first slot after that instant, computed from the definitions known now."`
}

// Pause is a period during which a job was paused.
type Pause struct {
	Since time.Time  `json:"since" doc:"When it began."`
	Ended *time.Time `json:"ended" doc:"When it ended. Null: the job is still paused."`
	Until *time.Time `json:"until" doc:"When it will end by itself, if it has not ended."`
	Note  string     `json:"note" doc:"Why, if the caller gave a note." example:"the warehouse moves"`
	By    *string    `json:"by" doc:"Who paused it, according to the audit log. Null: unknown." example:"key deploy (019ada51-20c4-7f0a-8b5d-3c1f9a7e6d42)"`
}

func (s *server) explainRoutes() {
	register(s, huma.Operation{
		OperationID: "explain-job", Method: http.MethodGet, Path: "/v1/jobs/{job}/explain", Tags: []string{tagSchedules},
		Summary: "Explain what happened at an instant", Errors: []int{404, 422},
		Description: "Says whether the job ran then, and if not, why not. By id, this also works for a deleted job.",
	}, s.explain)
}

type explainInput struct {
	JobRef
	At localParam `query:"at" required:"true" doc:"The instant, in RFC 3339. Without an offset, it is in the time zone of the job's schedule." example:"2026-12-01T03:00:00"`
}

type explainAnswer struct{ Body Explanation }

func (s *server) explain(ctx context.Context, tenant int32, in *explainInput) (*explainAnswer, error) {
	if err := in.exists(); err != nil {
		return nil, err
	}
	e, err := s.Store.ExplainJob(ctx, tenant, in.Job, in.At.in)
	if err != nil {
		return nil, err
	}
	return &explainAnswer{showExplanation(e)}, nil
}

func showExplanation(e history.Explanation) Explanation {
	out := Explanation{
		At: e.At.UTC(), Slot: utc(e.Slot), Version: pg.OrNull(e.Version), Outcome: e.Outcome, Text: e.Text,
		Run: e.Run, PreviousSlot: utc(e.PreviousSlot), NextSlot: utc(e.NextSlot),
	}
	if p := e.Pause; p != nil {
		out.Pause = &Pause{Since: p.Since.UTC(), Ended: utc(p.Ended), Until: utc(p.Until), Note: p.Note, By: pg.OrNull(p.By)}
	}
	return out
}

// localParam is an instant in a query, with or without an offset.
type localParam struct {
	at    time.Time // without an offset: the local time, as though it were UTC
	local bool
}

// localForms are RFC 3339 without an offset, and the same without seconds.
var localForms = []string{"2006-01-02T15:04:05.999999999", "2006-01-02T15:04"}

// UnmarshalText reads the instant. An unescaped plus sign arrives as a space.
func (p *localParam) UnmarshalText(text []byte) (err error) {
	if p.at, err = time.Parse(time.RFC3339Nano, strings.ReplaceAll(string(text), " ", "+")); err == nil {
		return nil
	}
	for _, form := range localForms {
		if p.at, err = time.Parse(form, string(text)); err == nil {
			p.local = true
			return nil
		}
	}
	return errNotInstant
}

// in returns the instant. A time without an offset is local time in the zone, by the rule for slots: a time that
// daylight saving skips moves forward by the gap, and of a time that comes twice the first counts.
func (p localParam) in(zone *time.Location) (time.Time, error) {
	if !p.local {
		return p.at, nil
	}
	w := p.at
	t := time.Date(w.Year(), w.Month(), w.Day(), w.Hour(), w.Minute(), w.Second(), w.Nanosecond(), zone)
	if gap := w.Sub(wall(t)); gap > 0 { // time.Date returned the instant before the gap
		return t.Add(gap), nil
	}
	if start, _ := t.ZoneBounds(); !start.IsZero() {
		_, before := start.Add(-1).Zone()
		_, now := t.Zone()
		if first := t.Add(time.Duration(now-before) * time.Second); first.Before(t) && wall(first).Equal(w) {
			return first, nil
		}
	}
	return t, nil
}

// wall returns the local time as though it were UTC.
func wall(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}
