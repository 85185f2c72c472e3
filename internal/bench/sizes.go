package bench

import "time"

// Sizes are how much the benchmarks measure with. Tests use small ones.
type Sizes struct {
	BurstJobs int // burst, replicas: due at one instant
	Slots     int // worker slots of a replica; also the requests at a time of the bare loop

	SteadyRate    int // steady: fires a second
	SteadySeconds int
	LoneJobs      int // one after the other

	InFlight     int // inflight: requests at a time, at most
	ReplicasMost int // replicas

	GrowthJobs                int // rest, history, tenants, inflight: due at one instant
	RestLeast, RestMost       int // rest: jobs stored; history: as many as the least
	HistoryLeast, HistoryMost int // history: runs that are over, besides none
	TenantsMost               int // tenants

	NoisyJobs, UrgentJobs int // fair
	LimitedJobs           int // limits: under those that bind

	IdleFor time.Duration // idle

	DeadRows int // bloat: of schedules, under the snapshot
	Claims   int // of 100 slots each, before and under it

	APIFor      time.Duration // api: of each kind of request
	APIClients  int
	RegisterAll int // register: jobs

	FlatRate  int           // flat: fires a second
	FlatEvery time.Duration // between two looks
}

// DefaultSizes are those of the published figures; full: the largest ones.
func DefaultSizes(full bool) Sizes {
	s := Sizes{
		BurstJobs: 50_000, Slots: 500,
		SteadyRate: 1000, SteadySeconds: 60, LoneJobs: 10,
		InFlight: 10_000, ReplicasMost: 8,
		GrowthJobs: 20_000, RestLeast: 10_000, RestMost: 1_000_000, HistoryLeast: 1_000_000, HistoryMost: 1_000_000, TenantsMost: 1000,
		NoisyJobs: 100_000, UrgentJobs: 10, LimitedJobs: 5000,
		IdleFor:  30 * time.Second,
		DeadRows: 200_000, Claims: 30,
		APIFor: 5 * time.Second, APIClients: 32,
		RegisterAll: 100_000,
		FlatRate:    100, FlatEvery: time.Minute,
	}
	if full {
		s.RegisterAll, s.RestMost, s.HistoryMost = 1_000_000, 10_000_000, 20_000_000
	}
	return s
}
