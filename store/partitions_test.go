package store

import (
	"sync"
	"testing"
	"time"

	"punctual/store/days"
)

// days counts the days that have partitions of all three tables, and returns the first and the last of these days,
// counted from today.
func (c claimer) days() (have, from, to int) {
	c.t.Helper()
	err := c.DB.Callers.QueryRow(c.t.Context(), `
		WITH days AS (
			SELECT to_date(right(c.relname, 8), 'YYYYMMDD') - (now() AT TIME ZONE 'UTC')::date AS day
			FROM pg_inherits i
			JOIN pg_class c ON c.oid = i.inhrelid
			WHERE i.inhparent IN (
					'punctual.runs'::regclass, 'punctual.attempts'::regclass, 'punctual.run_data'::regclass)
				AND c.relkind = 'r'
			GROUP BY 1
			HAVING count(*) = 3)
		SELECT count(*), min(day), max(day)
		FROM days`).Scan(&have, &from, &to)
	must(c.t, err)
	return have, from, to
}

// dropDays drops the tables of days, counted from today.
func (c crud) dropDays(from, to int) {
	c.t.Helper()
	for day := from; day <= to; day++ {
		suffix := time.Now().UTC().AddDate(0, 0, day).Format("20060102")
		c.exec(`DROP TABLE IF EXISTS punctual.runs_` + suffix + `, punctual.attempts_` + suffix +
			`, punctual.run_data_` + suffix)
	}
}

func TestEnsurePartitions(t *testing.T) {
	for _, c := range []struct {
		name       string
		spoil      func(claimer)
		made, from int
	}{
		{"makes none that are there", func(claimer) {}, 0, -1},
		{"makes the days that came nearer", func(c claimer) { c.dropDays(6, 7) }, 6, -1},
		{"makes all when there are none", func(c claimer) { c.dropDays(-1, 7) }, 27, -1},
		{"fills the days in which nothing ran", func(c claimer) {
			c.exec(`SELECT punctual.create_partitions(
				(now() AT TIME ZONE 'UTC')::date - 5, (now() AT TIME ZONE 'UTC')::date - 5)`)
			c.dropDays(-4, 7)
		}, 36, -5},
		{"makes one that is missing in between", func(c claimer) { c.dropDays(1, 1) }, 3, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newClaimer(t)
			c.spoil(r)
			made, err := r.Days.Ensure(t.Context(), r.DB.Chores)
			must(t, err)
			if made != c.made {
				t.Errorf("%d were made, want %d", made, c.made)
			}
			if have, from, to := r.days(); from != c.from || to != days.MadeAhead || have != to-from+1 {
				t.Errorf("there are %d days from %d to %d", have, from, to)
			}
			if made, err := r.Days.Ensure(t.Context(), r.DB.Chores); err != nil || made != 0 {
				t.Errorf("a second time %d were made: %v", made, err)
			}
		})
	}
}

func TestEnsurePartitionsFromManyReplicasAtOnce(t *testing.T) {
	c := newClaimer(t)
	c.dropDays(-1, 7)
	var replicas sync.WaitGroup
	for range 8 {
		replicas.Go(func() {
			if _, err := c.Days.Ensure(t.Context(), c.DB.Chores); err != nil {
				t.Error(err)
			}
		})
	}
	replicas.Wait()
	if have, from, to := c.days(); have != 9 || from != -1 || to != 7 {
		t.Errorf("there are %d days from %d to %d", have, from, to)
	}
}

// New partitions leave room for HOT updates, as the first partitions do.
func TestPartitionsAreFilledByLessThanHalf(t *testing.T) {
	c := newClaimer(t)
	c.dropDays(7, 7)
	if _, err := c.Days.Ensure(t.Context(), c.DB.Chores); err != nil {
		t.Fatal(err)
	}
	c.wantCount(9, "partitions of runs have a fill factor of 45", `SELECT count(*)
		FROM pg_class
		WHERE relname ~ '^runs_\d{8}$' AND relkind = 'r'
			AND 'fillfactor=45' = ANY(reloptions)`)
}
