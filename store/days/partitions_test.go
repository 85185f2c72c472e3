package days_test

import (
	"sync"
	"testing"

	. "punctual/internal/storetest"
	"punctual/store/days"
)

func TestEnsurePartitions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		spoil      func(Replica)
		made, from int
	}{
		{"makes none that are there", func(Replica) {}, 0, -1},
		{"makes the days that came nearer", func(c Replica) { c.DropDays(6, 7) }, 6, -1},
		{"makes all when there are none", func(c Replica) { c.DropDays(-1, 7) }, 27, -1},
		{"fills the days in which nothing ran", func(c Replica) {
			c.Exec(`SELECT punctual.create_partitions(
				(now() AT TIME ZONE 'UTC')::date - 5, (now() AT TIME ZONE 'UTC')::date - 5)`)
			c.DropDays(-4, 7)
		}, 36, -5},
		{"makes one that is missing in between", func(c Replica) { c.DropDays(1, 1) }, 3, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := NewReplica(t)
			c.spoil(r)
			made, err := r.Days.Ensure(t.Context(), r.DB.Chores)
			Must(t, err)
			if made != c.made {
				t.Errorf("%d were made, want %d", made, c.made)
			}
			if have, from, to := r.DayTables(); from != c.from || to != days.MadeAhead || have != to-from+1 {
				t.Errorf("there are %d days from %d to %d", have, from, to)
			}
			if made, err := r.Days.Ensure(t.Context(), r.DB.Chores); err != nil || made != 0 {
				t.Errorf("a second time %d were made: %v", made, err)
			}
		})
	}
}

// Eight replicas create partitions at once. None fails, and no day is missing.
//
//prove:data
func TestEnsurePartitionsFromManyReplicasAtOnce(t *testing.T) {
	c := NewReplica(t)
	c.DropDays(-1, 7)
	var replicas sync.WaitGroup
	for range 8 {
		replicas.Go(func() {
			if _, err := c.Days.Ensure(t.Context(), c.DB.Chores); err != nil {
				t.Error(err)
			}
		})
	}
	replicas.Wait()
	if have, from, to := c.DayTables(); have != 9 || from != -1 || to != 7 {
		t.Errorf("there are %d days from %d to %d", have, from, to)
	}
}

// New partitions leave room for HOT updates, as the first partitions do.
func TestPartitionsAreFilledByLessThanHalf(t *testing.T) {
	c := NewReplica(t)
	c.DropDays(7, 7)
	if _, err := c.Days.Ensure(t.Context(), c.DB.Chores); err != nil {
		t.Fatal(err)
	}
	c.WantCount(9, "partitions of runs have a fill factor of 45", `SELECT count(*)
		FROM pg_class
		WHERE relname ~ '^runs_\d{8}$' AND relkind = 'r'
			AND 'fillfactor=45' = ANY(reloptions)`)
}
