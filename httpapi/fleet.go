package httpapi

import (
	"context"
	"net/http"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/body"
	"punctual/scheduler/admit"
	"punctual/scheduler/delivery/wire"
	"punctual/store/fleet"
)

func (s *server) fleetRoutes() {
	api.Register(s.api, api.Operation{
		ID: "list-queues", Route: "GET /v1/queues", Role: auth.RoleViewer, Tag: tagFleet, Summary: "List queues",
		Errors: []int{422},
		Answers: []string{`{"held_back":{"limit":"max_concurrent_runs","most":100,
			"since":"2026-12-01T11:00:00.204Z","reason":"the tenant is at max_concurrent_runs (100)"}}`},
		Description: "Every queue: how much work is due in it, how much is being sent, and since when the oldest has been " +
			"due. The counts cover the caller's tenant and stop at 10,000.",
	}, s.listQueues)
	api.Register(s.api, api.Operation{
		ID: "list-replicas", Route: "GET /v1/replicas", Role: auth.RoleOperator, Tag: tagFleet, Summary: "List replicas",
		Errors: []int{422},
		Description: "Every process, the oldest first. A process that vanished is listed until another process notices, " +
			"which takes about ten seconds.",
	}, s.listReplicas)
	api.Register(s.api, api.Operation{
		ID: "list-breakers", Route: "GET /v1/breakers", Role: auth.RoleViewer, Tag: tagFleet, Summary: "List breakers",
		Errors: []int{422},
		Description: "Lists hosts that cannot be reached, and hosts and paths whose requests time out, with the number of " +
			"runs that wait for each. Empty: no run waits for its host.",
	}, s.listBreakers)
	api.RegisterBody[BreakersToReset](s.api, api.Operation{
		ID: "reset-breakers", Route: "POST /v1/breakers/reset", Role: auth.RoleEditor, Tag: tagFleet,
		Summary: "Reset breakers", Status: http.StatusAccepted,
		Description: "Within two seconds, every replica forgets that the host could not be reached or hung, and the runs " +
			"that wait for it are sent. If the host is still down, they soon wait again, for as long as they could have " +
			"waited before.",
	}, api.Optional, s.resetBreakers)
}

// QueueList lists all queues.
type QueueList struct {
	Data     []fleet.Queue   `json:"data" doc:"The queues, by name."`
	Frozen   *Frozen         `json:"frozen" doc:"The freeze that stops all claims for this tenant. Null: neither the tenant nor the deployment is frozen."`
	HeldBack *fleet.HeldBack `json:"held_back" doc:"The limit that makes due work of this tenant wait, in all queues. Null: it waits for concurrency only."`
}

func (s *server) listQueues(ctx context.Context, tenant int32, _ *struct{}) (*answer[QueueList], error) {
	queues, held, err := s.Store.Fleet.QueueDepths(ctx, tenant)
	if err != nil {
		return nil, err
	}
	frozen := s.freezes.of(ctx, tenant, auth.CallerOf(ctx).Role)
	return &answer[QueueList]{QueueList{Data: queues, Frozen: frozen, HeldBack: held}}, nil
}

// ReplicaList lists all replicas.
type ReplicaList struct {
	Data   []fleet.Replica `json:"data" doc:"The replicas, the oldest first."`
	Frozen *Frozen         `json:"frozen" doc:"The freeze that stops all claims of all replicas, for all tenants. Null: the deployment is not frozen."`
}

func (s *server) listReplicas(ctx context.Context, _ int32, _ *struct{}) (*answer[ReplicaList], error) {
	records, err := s.Store.Fleet.Replicas(ctx)
	if err != nil {
		return nil, err
	}
	all, err := s.freezes.all(ctx)
	frozen := showFrozen(all.Deployment, ScopeDeployment, auth.CallerOf(ctx).Role)
	return show(ReplicaList{Data: records, Frozen: frozen}, err)
}

// BreakerList lists all breakers, at most 1,000.
type BreakerList struct {
	Data []fleet.Breaker `json:"data" doc:"The circuit breakers and hanging hosts that hold runs back, by name; at most 1,000."`
}

func (s *server) listBreakers(ctx context.Context, tenant int32, _ *struct{}) (*answer[BreakerList], error) {
	holds, err := s.Store.Fleet.Holds(ctx, tenant)
	return show(BreakerList{Data: holds}, err)
}

// BreakersToReset names the breakers to reset.
type BreakersToReset struct {
	Host string `json:"host,omitempty" minLength:"1" maxLength:"300" doc:"Host and port, as list-breakers shows them. Absent: every host." example:"billing.internal:443"`
}

// maxHost is the longest name of a breaker, in bytes: a host, a port and a path.
const maxHost = 300

type resetBreakersInput struct {
	Request body.Body[BreakersToReset]
}

// BreakersReset counts the breakers that a reset is about.
type BreakersReset struct {
	Matched int `json:"matched" doc:"How many breakers are reset, on all replicas together. 0: no runs are held back for the host." example:"3"`
}

func (s *server) resetBreakers(
	ctx context.Context, tenant int32, in *resetBreakersInput,
) (*answer[BreakersReset], error) {
	if err := in.Request.Check(prose("body.host", in.Request.Value.Host, maxHost)...); err != nil {
		return nil, err
	}
	host := in.Request.Value.Host
	if u, err := wire.CheckURL("http://" + host); err == nil && u.Port() != "" {
		host = admit.HostOf(u)
	}
	n, err := s.Store.Replicas.ResetHolds(ctx, tenant, host)
	return show(BreakersReset{Matched: n}, err)
}
