package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"punctual/httpapi/auth"
	"punctual/store/fleet"
)

func (s *server) fleetRoutes() {
	register(s, huma.Operation{
		OperationID: "list-queues", Method: http.MethodGet, Path: "/v1/queues", Tags: []string{tagFleet},
		Summary: "List queues", Errors: []int{422},
		Description: "Every queue: how much work is due in it, how much is being sent, and since when the oldest has been " +
			"due. The counts cover the caller's tenant and stop at 10,000.",
	}, s.listQueues)
	register(s, huma.Operation{
		OperationID: "list-replicas", Method: http.MethodGet, Path: "/v1/replicas", Tags: []string{tagFleet},
		Summary: "List replicas", Errors: []int{422},
		Description: "Every process, the oldest first. A process that vanished is listed until another process notices, " +
			"which takes about ten seconds.",
	}, s.listReplicas)
}

// QueueList lists all queues.
type QueueList struct {
	Data     []fleet.Queue   `json:"data" doc:"The queues, by name."`
	Frozen   *Frozen         `json:"frozen" doc:"The freeze that stops all claims for this tenant. Null: neither the tenant nor the deployment is frozen."`
	HeldBack *fleet.HeldBack `json:"held_back" doc:"The limit that makes due work of this tenant wait, in all queues. Null: it waits for worker slots only."`
}

func (s *server) listQueues(ctx context.Context, tenant int32, _ *struct{}) (*answer[QueueList], error) {
	queues, held, err := s.Store.QueueDepths(ctx, tenant)
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
	records, err := s.Store.Replicas(ctx)
	if err != nil {
		return nil, err
	}
	all, err := s.freezes.all(ctx)
	frozen := showFrozen(all.Deployment, ScopeDeployment, auth.CallerOf(ctx).Role)
	return show(ReplicaList{Data: records, Frozen: frozen}, err)
}
