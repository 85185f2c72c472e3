package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"punctual/store"
)

func (s *server) breakerRoutes() {
	register(s, huma.Operation{
		OperationID: "list-breakers", Method: http.MethodGet, Path: "/v1/breakers", Tags: []string{tagFleet},
		Summary: "List breakers", Errors: []int{422},
		Description: "Lists hosts that cannot be reached, and hosts and paths whose requests time out, with the number of " +
			"runs that wait for each. Empty: no run waits for its host.",
	}, s.listBreakers)
	op := register(s, huma.Operation{
		OperationID: "reset-breakers", Method: http.MethodPost, Path: "/v1/breakers/reset", Tags: []string{tagFleet},
		Summary: "Reset breakers", DefaultStatus: http.StatusAccepted, Errors: []int{422},
		Description: "Within two seconds, every replica forgets that the host could not be reached or hung, and the runs " +
			"that wait for it are sent. If the host is still down, they soon wait again, for as long as they could have " +
			"waited before.",
	}, s.resetBreakers)
	op.RequestBody.Content[mediaJSON].Example = exampleBreakersReset
}

var exampleBreakersReset = json.RawMessage(`{"host":"billing.internal:443"}`)

// Breaker is one reason why runs of a tenant are held back: a host that cannot be reached, or a host or path that
// hangs.
type Breaker struct {
	HeldBy       string     `json:"held_by" doc:"Its name, as in runs, explain and the view overdue." example:"breaker billing.internal:443"`
	State        string     `json:"state" enum:"open,recovering,hanging" doc:"open: the host cannot be reached. recovering: the host can be reached again, and gets more requests with each response. hanging: its requests time out, so they may occupy at most a quarter of a queue's worker slots." example:"open"`
	Host         string     `json:"host" doc:"Host and port." example:"billing.internal:443"`
	Path         string     `json:"path,omitempty" doc:"The path that hangs; absent: the whole host." example:"/invoices"`
	Since        time.Time  `json:"since" doc:"Since when runs are held back."`
	Failures     int        `json:"failures" doc:"How many requests in a row failed." example:"14"`
	LastError    string     `json:"last_error" doc:"Why the latest request failed." example:"connection refused"`
	NextProbeAt  *time.Time `json:"next_probe_at" doc:"When the next request is let through. Null: one is under way."`
	Replicas     int        `json:"replicas" doc:"How many replicas hold back runs for it." example:"3"`
	WaitingRuns  int        `json:"waiting_runs" maximum:"10000" doc:"Runs that wait for it. 10000: 10,000 or more." example:"40"`
	WaitingSince *time.Time `json:"waiting_since" doc:"Since when the run that has waited longest has waited. Null: no run waits."`
}

// BreakerList lists all breakers, at most 1,000.
type BreakerList struct {
	Data []Breaker `json:"data" doc:"What holds runs back, by name; at most 1,000."`
}

type breakerListAnswer struct{ Body BreakerList }

func (s *server) listBreakers(ctx context.Context, tenant int32, _ *struct{}) (*breakerListAnswer, error) {
	holds, err := s.Store.Holds(ctx, tenant)
	if err != nil {
		return nil, err
	}
	return &breakerListAnswer{showBreakers(holds)}, nil
}

func showBreakers(holds []store.HoldRecord) BreakerList {
	list := BreakerList{Data: make([]Breaker, len(holds))}
	for i, h := range holds {
		list.Data[i] = Breaker{
			HeldBy: h.HeldBy, State: h.State, Host: h.Host, Path: h.Path, Since: h.Since, Failures: h.Failures,
			LastError: h.LastError, NextProbeAt: h.ProbeAt, Replicas: h.Replicas, WaitingRuns: h.Waiting, WaitingSince: h.Oldest,
		}
	}
	return list
}

type resetBreakersInput struct {
	Body struct {
		Host string `json:"host,omitempty" maxLength:"300" doc:"Host and port, as list-breakers shows them. Absent: every host." example:"billing.internal:443"`
	} `required:"false"`
}

// BreakersReset counts the breakers that a reset is about.
type BreakersReset struct {
	Matched int `json:"matched" doc:"How many breakers are reset, on all replicas together. 0: no runs are held back for the host." example:"3"`
}

type resetBreakersAnswer struct{ Body BreakersReset }

func (s *server) resetBreakers(
	ctx context.Context, tenant int32, in *resetBreakersInput,
) (*resetBreakersAnswer, error) {
	n, err := s.Store.ResetHolds(ctx, tenant, in.Body.Host)
	if err != nil {
		return nil, err
	}
	return &resetBreakersAnswer{BreakersReset{Matched: n}}, nil
}
