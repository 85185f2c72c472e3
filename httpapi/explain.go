package httpapi

import (
	"context"
	"strings"
	"time"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/scheduler/cron"
	"punctual/scheduler/jobspec"
	"punctual/store/history"
)

func (s *server) explainRoutes() {
	api.Register(s.api, api.Operation{
		ID: "explain-job", Route: "GET /v1/jobs/{job}/explain", Role: auth.RoleViewer, Tag: tagSchedules,
		Summary:     "Explain what happened at an instant",
		Answers:     []string{exampleExplained},
		Description: "Says whether the job ran then, and if not, why not. By id, this also works for a deleted job.",
	}, s.explain)
}

type explainInput struct {
	JobRef
	At localParam `query:"at" required:"true" doc:"The instant, in RFC 3339. Without an offset, it is in the time zone of the job's schedule." example:"2026-12-01T03:00:00"`
}

func (s *server) explain(ctx context.Context, tenant int32, in *explainInput) (*answer[history.Explanation], error) {
	return show(s.Store.History.ExplainJob(ctx, tenant, in.Job, in.At.in))
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
	var wrong error
	if p.at, wrong = jobspec.ParseInstant(strings.ReplaceAll(string(text), " ", "+")); wrong == nil {
		return nil
	}
	for _, form := range localForms {
		if p.at, err = time.Parse(form, string(text)); err == nil {
			p.local = true
			return nil
		}
	}
	return wrong
}

// in returns the instant. A time without an offset is local time in the zone, by the rule for slots: a time that
// daylight saving skips moves forward by the gap, and of a time that comes twice the first counts.
func (p localParam) in(zone *time.Location) (time.Time, error) {
	if !p.local {
		return p.at, nil
	}
	return cron.Local(p.at, zone).At, nil
}
