package store_test

import (
	"testing"

	. "punctual/internal/storetest"
)

func TestCountedHoursAreForgotten(t *testing.T) {
	c := NewFixture(t)
	for _, days := range []int{7, 9} {
		c.Exec(`INSERT INTO punctual.counted_hours (hour)
			SELECT date_trunc('hour', now(), 'UTC') - $1 * interval '1 day'`, days)
		c.Exec(`INSERT INTO punctual.hourly_runs
				(hour, tenant, round, succeeded, dead, cancelled, skipped, unended, lateness)
			SELECT date_trunc('hour', now(), 'UTC') - $1 * interval '1 day', 1, 1, 1, 0, 0, 0, 0, '{}'`, days)
	}
	for _, table := range []string{"counted_hours", "hourly_runs"} {
		for _, want := range []int{1, 0} {
			if n, left, err := c.ForgetOld(t.Context(), table); n != want || left || err != nil {
				t.Errorf("%s: forgot %d, want %d; left %t, %v", table, n, want, left, err)
			}
		}
	}
}
