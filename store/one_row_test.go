package store_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/store"
)

// everybodys are the tables of which each row is everybody's, and without which nothing can go on.
var everybodys = []string{"deployment", "queues", "locks", "run_token_key", "data_keys", "goose_db_version"}

// stops are the failures that stop the work of others. They are not drawn. Each claim reads from the rows of all
// tenants which are frozen: while it is not known, nothing is sent.
var stops = []failure{
	{"tenants", "cannot be read"},
	{"tenants", "is read for ever"},
}

// oneRow is SQL that is true of one row r of a table: of a job, or of a tenant, or any at all. It returns false if the
// table is of nobody.
func oneRow(c Fixture, table string, tenant int32, job uuid.UUID) (sql string) {
	c.T.Helper()
	has := func(column string) bool {
		return c.Count(`SELECT count(*) FROM pg_attribute WHERE attrelid = ('punctual.' || $1)::regclass AND attname = $2`,
			table, column) > 0
	}
	ofRun := func(run string) string { return fmt.Sprintf(`punctual.is_hostile(%s, '%s')`, run, job) }
	switch {
	case table == "jobs":
		return fmt.Sprintf(`r.id = '%s'`, job)
	case table == "tenants":
		return fmt.Sprintf(`r.id = %d`, tenant)
	case has("job_id") && has("tenant"):
		return fmt.Sprintf(`r.job_id = '%s' OR r.job_id IS NULL AND r.tenant = %d`, job, tenant)
	case has("job_id"):
		return fmt.Sprintf(`r.job_id = '%s'`, job)
	case has("run_id"):
		return ofRun(`r.run_id`)
	case has("run_ids"):
		return `EXISTS (SELECT FROM unnest(r.run_ids) u(run) WHERE ` + ofRun(`u.run`) + `)`
	case has("tenant"):
		return fmt.Sprintf(`r.tenant = %d`, tenant)
	}
	return ``
}

// await waits until nothing is left.
func awaitNothing(c Fixture, t *testing.T, what string, within time.Duration, left func() []string) {
	t.Helper()
	for deadline := time.Now().Add(within); ; {
		undone := left()
		if len(undone) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("set aside: %q", Column[string](c, `SELECT a.kind || ': ' || a.reason FROM punctual.set_aside a`))
			t.Fatalf("%s within %s:\n%s", what, within, strings.Join(undone, "\n"))
		}
		select {
		case <-t.Context().Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// within bounds the wait for work that takes two or three seconds on an idle machine. A chore that hangs at a row is
// given up after some seconds, and what is past its retention waits for its turn of 20 s.
const within = 3 * time.Minute

// theOthersEnd has one row fail, and wants all work of the other tenants to end. Once the row is mended, its work ends,
// too.
func theOthersEnd(t *testing.T, table string, h Harmful, seed uint64) {
	t.Parallel()
	c := AsReplica(OpenFixture(t, store.Options{
		DatabaseURL: pgtest.DSN(t), MaxConns: 24, Replica: true, Master: pgtest.Master(t),
	}))
	at := listen(t)
	worlds := populate(c, c.Superuser(pgtest.Server(t)), at, "well", "hostile")
	well, hostile := worlds[0], worlds[1]
	names := []string{}
	for name := range hostile.jobs {
		names = append(names, name)
	}
	slices.Sort(names)
	victim := names[rand.New(rand.NewPCG(seed, 0)).IntN(len(names))]
	mend := func() {}
	if table != "" {
		row := oneRow(c.Fixture, table, hostile.Tenant, hostile.jobs[victim])
		t.Logf("seed %d: the row of %s: %s", seed, victim, row)
		mend = Harm(c.Fixture, table, row, h)
	}
	begun := time.Now()
	c.ReplicateOn(c.Replicas, "default", 50)
	awaitNothing(c.Fixture, t, "the work of others was not done", within, well.undone)
	t.Logf("the others' work was done in %s", time.Since(begun).Round(100*time.Millisecond))
	mend()
	begun = time.Now()
	awaitNothing(c.Fixture, t, "what was mended was not done", within, func() []string {
		c.Exec(`UPDATE punctual.set_aside SET retry_at = now()`)
		_, err := c.Chore(t.Context(), "tidying") // now, and not within a minute
		c.Must(err)
		return slices.DeleteFunc(hostile.undone(), func(what string) bool {
			return strings.HasPrefix(what, "uncounted") // until what was left out is tried again
		})
	})
	t.Logf("the rest was done in %s", time.Since(begun).Round(100*time.Millisecond))
}

// tables are all tables but the partitions of others.
func tables(c Fixture) []string {
	return Column[string](c, `SELECT relname FROM pg_class WHERE relnamespace = 'punctual'::regnamespace
		AND relkind IN ('r', 'p') AND NOT relispartition ORDER BY 1`)
}

// failure is a way in which a row of a table fails.
type failure struct{ table, how string }

// failures are all of them, in an order of its own for each seed.
func failures(c Fixture, seed uint64) (all []failure) {
	for _, table := range tables(c) {
		if slices.Contains(everybodys, table) || oneRow(c, table, 0, uuid.Nil) == "" { // of no tenant
			continue
		}
		for _, how := range slices.Sorted(maps.Keys(Harms)) {
			if f := (failure{table, how}); !slices.Contains(stops, f) {
				all = append(all, f)
			}
		}
	}
	rand.New(rand.NewPCG(seed, 1)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// seeded returns the seed of what is drawn. The environment's SEED draws others.
func seeded(t *testing.T) (seed uint64) {
	t.Helper()
	seed = 1
	if given := os.Getenv("SEED"); given != "" {
		var err error
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	return seed
}

// Whatever single row fails, and however, the work of all other tenants is done. Two of all failures are drawn.
func TestOneRowFailsAndAllOthersAreDone(t *testing.T) {
	t.Run("nothing fails", func(t *testing.T) { theOthersEnd(t, "", Harmful{}, 1) })
	const drawn = 2
	seed := seeded(t)
	soon := slices.DeleteFunc(failures(NewFixtureOn(t, pgtest.DSN(t)), seed), func(f failure) bool {
		return f.how != "is refused" && f.how != "cannot be read" // the others take long
	})
	for _, f := range soon[:drawn] {
		t.Run(f.table+" "+f.how, func(t *testing.T) { theOthersEnd(t, f.table, Harms[f.how], seed) })
	}
}

// All failures take half an hour on two cores. So some of them are drawn, unless the environment has ROWS=all.
func TestAnyRowFailsAndAllOthersAreDone(t *testing.T) {
	t.Parallel()
	pgtest.Exhaustive(t, "a world for each table and each way in which a row of it fails")
	seed := seeded(t)
	all := failures(NewFixtureOn(t, pgtest.DSN(t)), seed)
	if os.Getenv("ROWS") != "all" {
		all = all[:30]
	}
	for _, f := range all {
		t.Run(f.table+" "+f.how, func(t *testing.T) { theOthersEnd(t, f.table, Harms[f.how], seed) })
	}
}
