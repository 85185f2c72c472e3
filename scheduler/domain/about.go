package domain

import (
	"math/rand/v2"
	"time"
)

// About returns d, at most 10 % shorter or longer, so that replicas do not do things in step.
func About(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.9 + 0.2*rand.Float64())) //nolint:gosec // spreads load, guards nothing
}
