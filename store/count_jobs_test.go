package store

import (
	"fmt"
	"testing"

	"punctual/store/tenants"
)

// A tenant may have a million jobs. They are counted as far as its limit needs, and to 10,000 at least.
func TestJobsAreCountedAsFarAsNeeded(t *testing.T) {
	c := newClaimer(t)
	c.many(10_050, "job", -1e15)
	for most, want := range map[int]int{0: 10_000, 5: 10_000, 10_020: 10_020, 20_000: 10_050} {
		t.Run(fmt.Sprint("max_jobs ", most), func(t *testing.T) {
			tenant := tenants.Tenant{ID: c.tenant, Name: "default"}
			if most > 0 {
				tenant.MaxJobs = &most
			}
			if n, err := c.CountJobs(t.Context(), tenant); err != nil || n != want {
				t.Errorf("%d jobs, want %d, %v", n, want, err)
			}
		})
	}
}
