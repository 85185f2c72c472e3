package bench

import "time"

// Sizes says how much each benchmark measures. Tests use small sizes.
type Sizes struct {
	BurstJobs int // burst, replicas: jobs due at one instant
	Slots     int // worker slots of a replica; also the bare loop's requests at a time

	SteadyRate    int // steady: fires a second
	SteadySeconds int
	LoneJobs      int // steady: lone jobs, one after the other

	InFlight     int // inflight: most requests at a time
	ReplicasMost int // replicas: most replicas

	GrowthJobs                int // rest, history, tenants, inflight: jobs due at one instant
	RestLeast, RestMost       int // rest: stored jobs; history uses RestLeast
	HistoryLeast, HistoryMost int // history: finished runs, besides the stage with none
	TenantsMost               int // tenants: most tenants

	NoisyJobs, UrgentJobs int // fair
	LimitedJobs           int // limits: jobs under limits that bind
	Workflows             int // workflows: begin at one instant
	Hops                  int // hops: of each kind, one after the other

	IdleFor time.Duration // idle

	DeadRows int // bloat: dead rows of schedules under the snapshot
	Claims   int // bloat: claims of 100 slots, before the snapshot and under it

	APIFor      time.Duration // api: duration of each kind of request
	APIClients  int
	RegisterAll int // register: jobs to create

	PeerRate, PeerSeconds int           // peers: fires a second, and for how long
	PeerKilled            int           // peers: jobs of a second while a worker is killed
	PeerSlots             int           // peers: slots of each of the two workers then
	PeerKillAfter         time.Duration // peers: from the first request to the kill
	PeerKillFor           time.Duration // peers: how long to wait for lost jobs
	PeerCrons             int           // peers: recurring jobs of one second

	PageJobs, PageRuns int // pages: stored jobs, and finished runs
	PageDeaths         int // pages: how many of these are dead
	PageTimes          int // pages: how often each page is looked at

	FlatRate  int           // flat: fires a second
	FlatEvery time.Duration // flat: time between two readings
}

// DefaultSizes returns the sizes of the published figures; if full, the large ones.
func DefaultSizes(full bool) Sizes {
	s := Sizes{
		BurstJobs: 50_000, Slots: 500,
		SteadyRate: 1000, SteadySeconds: 60, LoneJobs: 10,
		InFlight: 10_000, ReplicasMost: 8,
		GrowthJobs: 20_000, RestLeast: 10_000, RestMost: 1_000_000, HistoryLeast: 1_000_000, HistoryMost: 1_000_000,
		TenantsMost: 1000,
		NoisyJobs:   100_000, UrgentJobs: 100, LimitedJobs: 5000, Workflows: 1000, Hops: 40,
		IdleFor:  30 * time.Second,
		DeadRows: 200_000, Claims: 30,
		APIFor: 5 * time.Second, APIClients: 32,
		RegisterAll: 100_000,
		PeerRate:    200, PeerSeconds: 10,
		PeerKilled: 2000, PeerSlots: 100, PeerKillAfter: 4 * time.Second, PeerKillFor: 5 * time.Minute,
		PeerCrons: 5000,
		PageJobs:  1_000_000, PageRuns: 10_000_000, PageDeaths: 5000, PageTimes: 40,
		FlatRate: 100, FlatEvery: time.Minute,
	}
	if full {
		s.RegisterAll, s.RestMost, s.HistoryMost = 1_000_000, 10_000_000, 20_000_000
	}
	return s
}
