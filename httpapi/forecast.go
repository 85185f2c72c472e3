package httpapi

import (
	"context"
	"time"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
	"punctual/scheduler/forecast"
	"punctual/scheduler/jobspec"
	"punctual/store/pg"
)

// Forecast is what is to come in a window, step by step.
type Forecast struct {
	AsOf       time.Time           `json:"as_of" doc:"When the jobs were read. A forecast is reused for a minute."`
	Scope      FreezeScope         `json:"scope" enum:"deployment,tenant" doc:"Whose jobs are counted." example:"tenant"`
	From       time.Time           `json:"from" doc:"When the first step begins."`
	To         time.Time           `json:"to" doc:"When the last step ends. The last step may be shorter than the others."`
	Step       string              `json:"step" doc:"Length of a step." example:"1h"`
	Jobs       int                 `json:"jobs" doc:"Jobs with a slot in the window." example:"81204"`
	Unreadable int                 `json:"unreadable" doc:"Jobs that are not counted, because this replica cannot read their schedules: a newer replica wrote them." example:"0"`
	Total      int                 `json:"total" doc:"Slots and dated runs in the window." example:"411730"`
	Slots      []int               `json:"slots" doc:"Slots and dated runs by step: those whose nominal fire time lies in the step. The step with the index i begins at from + i * step."`
	Starts     []float64           `json:"starts" doc:"Expected starts by step, with the jitter that the jobs have. A slot is due later than its nominal time, so it counts in each step in which it may be due, with the part of its jitter that lies there."`
	Busiest    []forecast.BusyStep `json:"busiest" doc:"The ten steps with the most expected starts, the busiest first. Steps without any are left out."`
	Spread     []Spread            `json:"spread" doc:"The effect of more jitter: the highest number of starts in a step, first with the jitter that the jobs have, then if each recurring job had at least 1m, 5m or 15m."`
}

// Spread is the peak of a window, if jobs had a jitter.
type Spread struct {
	Jitter *string   `json:"jitter" enum:"1m,5m,15m" doc:"The jitter that each recurring job has at least. A job that has a longer one keeps it. Null: the jitter that the jobs have." example:"5m"`
	At     time.Time `json:"at" doc:"When the step with the most starts begins."`
	Starts float64   `json:"starts" doc:"Expected starts in that step." example:"12022.4"`
}

func (s *server) forecastRoutes() {
	api.Register(s.api, api.Operation{
		ID: "get-forecast", Route: "GET /v1/forecast", Role: auth.RoleViewer, Tag: tagSchedules,
		Summary: "Forecast the load", Errors: []int{503},
		Past: true,
		Description: "How many slots are to come, step by step, which steps are the busiest, which jobs make them so, and " +
			"what more jitter would do. It counts the slots of all active jobs that are still to be claimed, one-shots " +
			"included. It counts no retries, triggers, replays and backfills, and no slots of jobs that are paused now. A " +
			"freeze changes nothing in it. Jitter of less than a step hardly shows, so take a step shorter than the jitter. A " +
			"replica computes one forecast at a time, and answers from it for a minute. Requests for the same forecast wait " +
			"for it. Requests for another wait for their turn, for 8s at most, and then get 503 (busy).",
	}, s.getForecast)
}

type forecastInput struct {
	Scope FreezeScope `query:"scope" enum:"deployment,tenant" default:"tenant" doc:"Whose jobs are counted. deployment: those of all tenants, which needs an operator. tenant: those of the tenant." example:"tenant"`
	From  string      `query:"from" maxLength:"64" doc:"When the first step begins: now or later, or earlier by at most a step or a minute. Absent: now, rounded down to a multiple of step since 1970." example:"2026-12-01T11:00:00Z"`
	To    string      `query:"to" maxLength:"64" doc:"When the last step ends, at most 7 days from now. Absent: 24 hours after from." example:"2026-12-02T11:00:00Z"`
	Step  string      `query:"step" maxLength:"64" default:"1m" doc:"Length of a step: whole seconds, 1s to 24h. The window has at most 10,080 steps." example:"1h"`
}

func (s *server) getForecast(ctx context.Context, tenant int32, in *forecastInput) (*answer[Forecast], error) {
	scope, err := in.Scope.of(ctx, tenant)
	if err != nil {
		return nil, err
	}
	asked, problems := in.read()
	if len(problems) > 0 {
		return nil, problem.Invalid(problems...)
	}
	now := time.Unix(0, 0) // any instant does for a window that begins now
	if asked.bounded() {
		if now, err = s.Store.Now(ctx); err != nil {
			return nil, err
		}
	}
	if problems := asked.check(now); len(problems) > 0 {
		return nil, problem.Invalid(problems...)
	}
	known, err := s.outlook.of(ctx, forecastOf{scope, asked})
	if err != nil {
		return nil, err
	}
	if r := pg.ReadingOf(ctx); r != nil && !known.asOf.IsZero() {
		r.Tell(known.asOf)
	}
	return &answer[Forecast]{showForecast(known, in.Scope)}, nil
}

func showForecast(known *knownForecast, scope FreezeScope) Forecast {
	f, w := known.Forecast, known.window
	shown := Forecast{
		AsOf: f.AsOf, Scope: scope, From: w.From, To: w.To, Step: jobspec.Short(w.Step), Jobs: f.Jobs, Unreadable: f.Broken,
		Total: int(f.Total), Starts: f.Starts, Busiest: f.Busiest,
	}
	for _, n := range f.Slots {
		shown.Slots = append(shown.Slots, int(n))
	}
	for _, p := range f.Spread {
		s := Spread{At: p.At, Starts: p.Starts}
		if p.Jitter > 0 {
			s.Jitter = new(jobspec.Short(p.Jitter))
		}
		shown.Spread = append(shown.Spread, s)
	}
	return shown
}
