package bench

// Sizes are how much the benchmarks measure with. Tests use small ones.
type Sizes struct {
	BurstJobs int // due at one instant
	Slots     int // worker slots of a replica; also the requests at a time of the bare loop
}

// DefaultSizes are those of the published figures; full: the largest ones.
func DefaultSizes(_ bool) Sizes {
	return Sizes{BurstJobs: 50_000, Slots: 500}
}
