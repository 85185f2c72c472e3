package httpapi

import (
	"github.com/google/uuid"

	"punctual/scheduler"
	"punctual/store/fleet"
)

// Examples of the documentation: queues and replicas.
var (
	exampleQueues = QueueList{
		Data: []fleet.Queue{
			{Name: "critical"},
			{
				Name: "default", DueSlots: 204, DueRuns: 3, LaterRuns: 12, InFlight: 100,
				OldestDue: new(at("2026-12-01T11:00:00Z")),
			},
		},
		HeldBack: &fleet.HeldBack{
			Limit: scheduler.LimitConcurrent, Most: 100, Since: at("2026-12-01T11:00:00.204Z"),
			Reason: "the tenant is at max_concurrent_runs (100)",
		},
	}
	exampleReplicas = ReplicaList{Data: []fleet.Replica{{
		ID: uuid.MustParse("5b0b8a52-3f0e-4c67-9d35-9d7f3f7a2c11"), Host: "punctual-7c9f", Version: "1.4.0",
		Queues: map[string]int{"default": 500, "critical": 100}, StartedAt: at("2026-11-30T08:14:09.117Z"),
		RenewedAt: at("2026-12-01T11:04:31.902Z"),
	}}}
)

var exampleBreakers = BreakerList{Data: []fleet.Breaker{{
	HeldBy: "breaker billing.internal:443", State: scheduler.HoldOpen, Host: "billing.internal:443",
	Since: at("2026-12-01T11:00:41.310Z"), Failures: 14, LastError: "connection refused",
	NextProbeAt: new(at("2026-12-01T11:04:40.118Z")), Replicas: 3, WaitingRuns: 40,
	WaitingSince: new(at("2026-12-01T11:00:42.007Z")),
}, {
	HeldBy: "hanging reports.internal:443/yearly", State: scheduler.HoldHanging, Host: "reports.internal:443",
	Path: "/yearly", Since: at("2026-12-01T10:52:00.550Z"), Failures: 9, LastError: "9 timeouts in a row", Replicas: 1,
}}}
