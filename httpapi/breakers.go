package httpapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"punctual/store/fleet"
)

func (s *server) breakerRoutes() {
	register(s, huma.Operation{
		OperationID: "list-breakers", Method: http.MethodGet, Path: "/v1/breakers", Tags: []string{tagFleet},
		Summary: "List breakers", Errors: []int{422},
		Description: "Lists hosts that cannot be reached, and hosts and paths whose requests time out, with the number of " +
			"runs that wait for each. Empty: no run waits for its host.",
	}, s.listBreakers)
	register(s, huma.Operation{
		OperationID: "reset-breakers", Method: http.MethodPost, Path: "/v1/breakers/reset", Tags: []string{tagFleet},
		Summary: "Reset breakers", DefaultStatus: http.StatusAccepted,
		Description: "Within two seconds, every replica forgets that the host could not be reached or hung, and the runs " +
			"that wait for it are sent. If the host is still down, they soon wait again, for as long as they could have " +
			"waited before.",
		RequestBody: &huma.RequestBody{Content: map[string]*huma.MediaType{mediaJSON: {Example: exampleBreakersReset}}},
	}, s.resetBreakers)
}

var exampleBreakersReset = json.RawMessage(`{"host":"billing.internal:443"}`)

// BreakerList lists all breakers, at most 1,000.
type BreakerList struct {
	Data []fleet.Breaker `json:"data" doc:"What holds runs back, by name; at most 1,000."`
}

func (s *server) listBreakers(ctx context.Context, tenant int32, _ *struct{}) (*answer[BreakerList], error) {
	holds, err := s.Store.Holds(ctx, tenant)
	return show(BreakerList{Data: holds}, err)
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

func (s *server) resetBreakers(
	ctx context.Context, tenant int32, in *resetBreakersInput,
) (*answer[BreakersReset], error) {
	n, err := s.Store.ResetHolds(ctx, tenant, in.Body.Host)
	return show(BreakersReset{Matched: n}, err)
}
