package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"punctual/scheduler"
	"punctual/store/fleet"
)

func (s *server) fleetRoutes() {
	register(s, huma.Operation{
		OperationID: "list-queues", Method: http.MethodGet, Path: "/v1/queues", Tags: []string{tagFleet},
		Summary: "List queues", Errors: []int{404, 422},
		Description: "Every queue: how much work is due in it, how much is being sent, and since when the oldest has been " +
			"due. The counts cover the caller's tenant and stop at 10,000.",
	}, s.listQueues)
	register(s, huma.Operation{
		OperationID: "list-replicas", Method: http.MethodGet, Path: "/v1/replicas", Tags: []string{tagFleet},
		Summary: "List replicas", Errors: []int{404, 422},
		Description: "Every process, the oldest first. A process that vanished is listed until another process notices, " +
			"which takes about ten seconds.",
	}, s.listReplicas)
}

// Queue is a lane of work, with the work that a tenant has in it.
type Queue struct {
	Name      string     `json:"name" doc:"Its name." example:"default"`
	DueSlots  int        `json:"due_slots" maximum:"10000" doc:"Slots that are due and not claimed yet. 10000: 10,000 or more." example:"12"`
	DueRuns   int        `json:"due_runs" maximum:"10000" doc:"Runs that are ready to be sent now: manual runs, replays and retries." example:"3"`
	LaterRuns int        `json:"later_runs" maximum:"10000" doc:"Runs that wait for a later instant: that of a retry, or the deadline of an async target that is still working." example:"40"`
	HeldRuns  int        `json:"held_runs" maximum:"10000" doc:"Runs that wait for a host that cannot be reached or hangs. GET /v1/breakers counts them by host." example:"0"`
	InFlight  int        `json:"in_flight" maximum:"10000" doc:"Runs that are being sent." example:"100"`
	OldestDue *time.Time `json:"oldest_due" doc:"When the oldest due slot or run became due, or when the oldest hold began, if that is earlier. Null: nothing is due or held."`
	WaitsFor  *string    `json:"waits_for" doc:"Why nothing in this queue is sent. Null: the queue is served." example:"no live replica serves the queue \"critical\""`
}

// HeldBack says why due work waits although worker slots may be free.
type HeldBack struct {
	Limit  scheduler.Limit `json:"limit" enum:"max_concurrent_runs,max_runs_per_second" doc:"The tenant's limit that holds back its due work." example:"max_concurrent_runs"`
	Most   int             `json:"most" doc:"The value of the limit." example:"100"`
	Since  time.Time       `json:"since" doc:"Since when more work has been due than the limit allows."`
	Reason string          `json:"reason" doc:"The limit in words." example:"the tenant is at max_concurrent_runs (100)"`
}

// QueueList lists all queues.
type QueueList struct {
	Data     []Queue   `json:"data" doc:"The queues, by name."`
	Frozen   *Frozen   `json:"frozen" doc:"The freeze that stops all claims for this tenant. Null: neither the tenant nor the deployment is frozen."`
	HeldBack *HeldBack `json:"held_back" doc:"The limit that makes due work of this tenant wait, in all queues. Null: it waits for worker slots only."`
}

type queueListAnswer struct{ Body QueueList }

func (s *server) listQueues(ctx context.Context, tenant int32, _ *struct{}) (*queueListAnswer, error) {
	depths, held, err := s.Store.QueueDepths(ctx, tenant)
	if err != nil {
		return nil, err
	}
	list := showQueues(depths, held)
	list.Frozen = s.freezes.of(ctx, tenant, callerOf(ctx).role)
	return &queueListAnswer{list}, nil
}

func showQueues(depths []fleet.QueueDepth, held []fleet.HeldBack) QueueList {
	list := QueueList{Data: make([]Queue, len(depths))}
	for i, d := range depths {
		list.Data[i] = Queue{
			Name: d.Name, DueSlots: d.DueSlots, DueRuns: d.DueRuns, LaterRuns: d.LaterRuns, HeldRuns: d.HeldRuns,
			InFlight: d.InFlight, OldestDue: d.OldestDue,
		}
		if !d.Served {
			list.Data[i].WaitsFor = new(fmt.Sprintf("no live replica serves the queue %q", d.Name))
		}
	}
	if len(held) == 1 {
		h := held[0]
		list.HeldBack = &HeldBack{Limit: h.Limit, Most: h.Most, Since: h.Since, Reason: h.Reason()}
	}
	return list
}

// ReplicaList lists all replicas.
type ReplicaList struct {
	Data   []fleet.Replica `json:"data" doc:"The replicas, the oldest first."`
	Frozen *Frozen         `json:"frozen" doc:"The freeze that stops all claims of all replicas, for all tenants. Null: the deployment is not frozen."`
}

type replicaListAnswer struct{ Body ReplicaList }

func (s *server) listReplicas(ctx context.Context, _ int32, _ *struct{}) (*replicaListAnswer, error) {
	records, err := s.Store.Replicas(ctx)
	if err != nil {
		return nil, err
	}
	list := ReplicaList{Data: records}
	all, err := s.freezes.all(ctx)
	if err != nil {
		return nil, err
	}
	list.Frozen = showFrozen(all.Deployment, ScopeDeployment, callerOf(ctx).role)
	return &replicaListAnswer{list}, nil
}
