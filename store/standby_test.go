package store_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/store"
	"punctual/store/history"
	"punctual/store/pg"
	"punctual/store/vault"
)

// pair is a database with a standby, and the key of its secrets.
type pair struct {
	pgtest.Pair
	master *vault.Master
}

// beside is a store on a database and its standby, and what it logs.
type beside struct {
	Fixture
	pair
	log *bytes.Buffer
}

// withStandby opens a store on a pair, with a tenant of its own. change may alter how it reaches the standby.
func withStandby(t *testing.T, p pair, change func(*pg.Standby)) beside {
	t.Helper()
	log := new(bytes.Buffer)
	o := store.Options{
		DatabaseURL: p.DSN, Master: p.master, Replica: true, Log: slog.New(slog.NewTextHandler(log, nil)),
		Standby: pg.Standby{URL: p.Copy, MaxStaleness: time.Hour},
	}
	if change != nil {
		change(&o.Standby)
	}
	b := beside{OpenFixture(t, o), p, log}
	b.Tenant = b.NewTenant("t-" + uuid.NewString()).ID
	p.Replayed()
	return b
}

// The parts share one pair, as it takes seconds to start. The last ones leave it unusable.
func TestReadsOfThePast(t *testing.T) {
	pgtest.Exhaustive(t, "it starts servers, and waits for those that lag and hang")
	t.Parallel()
	p := pair{pgtest.NewPair(t), pgtest.Master(t)}
	for _, part := range []struct {
		name string
		test func(*testing.T, pair)
	}{
		{"go to a standby that knows enough", goToTheStandby},
		{"ask the primary for a run that is not final at the standby", askForUnended},
		{"go to no other database", goToNoOther},
		{"are those of verify", verifyThere},
		{"wait a bounded time once for a standby that hangs", waitOnce},
		{"are repeated when recovery cancels them", areRepeated},
		{"are right when the standby lags a minute", areRightWithALag},
		{"leave a standby alone that stops", leaveAlone},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, p) })
	}
}

// reads fails the test unless a read of the past is answered as wanted, and sees all jobs of the tenant.
func (b beside) reads(since pg.Position, want string, jobs int) {
	b.T.Helper()
	before := b.DB.StandbyState().Answers[want]
	reading := pg.Reading{Since: since}
	n, err := b.count(reading.Within(b.T.Context()), b.Tenant)
	Must(b.T, err)
	if n != jobs {
		b.T.Errorf("it sees %d jobs, want %d", n, jobs)
	}
	if now := b.DB.StandbyState().Answers; now[want] != before+1 {
		b.T.Errorf("the read counts as none by %s: %v; log: %s", want, now, b.log)
	}
	if home := want != "standby"; reading.AtHome() != home || reading.AsOf().IsZero() {
		b.T.Errorf("at the primary %v, want %v; as of %s", reading.AtHome(), home, reading.AsOf())
	}
}

// count reads, without a filter of its own, how many jobs a tenant has.
func (b beside) count(ctx context.Context, tenant int32) (int, error) {
	return pg.Past(ctx, b.DB.Callers, tenant, func(ctx context.Context, q pg.Source) (int, error) {
		return pg.One(ctx, q, pgx.RowTo[int], `SELECT count(*)::int FROM punctual.jobs`)
	})
}

func goToTheStandby(t *testing.T, p pair) {
	b := withStandby(t, p, nil)
	b.Create("first", Every(time.Hour))
	since := b.Position(t.Context())
	p.Replayed()
	b.reads("", "standby", 1)
	b.reads(since, "standby", 1)

	p.OnStandby(`SELECT pg_wal_replay_pause()`)
	b.Create("second", Every(time.Hour))
	b.reads("", "standby", 1)
	b.reads(b.Position(t.Context()), "behind", 2)
	if n, err := b.count(t.Context(), b.Tenant); n != 2 || err != nil {
		t.Errorf("a read that tells nobody its instant sees %d jobs (%v)", n, err)
	}
	p.OnStandby(`SELECT pg_wal_replay_resume()`)
	p.Replayed()
	b.reads("", "standby", 2)

	other := b.NewTenant("other")
	p.Replayed()
	reading := new(pg.Reading)
	if n, err := b.count(reading.Within(t.Context()), other.ID); n != 0 || err != nil || reading.AtHome() {
		t.Errorf("another tenant sees %d jobs (%v), at the primary: %v", n, err, reading.AtHome())
	}
	if b.log.Len() > 0 {
		t.Errorf("logged: %s", b.log)
	}
}

// With a lag of a minute, each answer knows of all writes.
func areRightWithALag(t *testing.T, p pair) {
	b := withStandby(t, p, nil)
	soon := withStandby(t, p, func(s *pg.Standby) { s.MaxStaleness = time.Second })
	b.Create("first", Every(time.Hour))
	p.Replayed()
	p.Configure("recovery_min_apply_delay", "60s")
	defer p.Configure("recovery_min_apply_delay", "0s")
	for i := range 5 {
		b.Create(fmt.Sprint("more-", i), Every(time.Hour))
		b.reads(b.Position(t.Context()), "behind", i+2)
	}
	ctx := Bounded(t)
	for soon.DB.StandbyState().Answers["stale"] == 0 { // until the standby is too old
		_, err := soon.count(new(pg.Reading).Within(ctx), b.Tenant)
		Must(t, err)
	}
	soon.Tenant = b.Tenant
	soon.reads("", "stale", 6)
}

func areRepeated(t *testing.T, p pair) {
	b := withStandby(t, p, nil)
	p.Configure("max_standby_streaming_delay", "0s")
	for i := range 10 {
		b.Create(fmt.Sprint("job-", i), Every(time.Hour))
	}
	p.Replayed()
	for _, c := range []struct {
		name      string
		cancelled int // tries
		home      bool
	}{{"once", 1, false}, {"always", 3, true}} {
		t.Run(c.name, func(t *testing.T) {
			tries, reading := 0, new(pg.Reading)
			n, err := pg.PastSnapshot(reading.Within(t.Context()), b.DB.Callers, b.Tenant,
				func(ctx context.Context, tx pg.Snapshot) (int, error) {
					count := func() (int, error) {
						return pg.One(ctx, tx, pgx.RowTo[int], `SELECT count(*)::int FROM punctual.jobs`)
					}
					n, err := count()
					if tries++; err != nil || tries > c.cancelled || !tx.Standby {
						return n, err
					}
					b.Exec(`UPDATE punctual.jobs SET updated_at = now()`)
					b.Exec(`VACUUM punctual.jobs`)
					p.Replayed()
					return count()
				})
			if n != 10 || err != nil || tries != min(c.cancelled+1, 3) || reading.AtHome() != c.home {
				t.Errorf("%d jobs (%v) after %d tries, at the primary: %v", n, err, tries, reading.AtHome())
			}
		})
	}
	if !b.DB.StandbyState().Usable {
		t.Errorf("it is left alone: %s", b.log)
	}
}

func leaveAlone(t *testing.T, p pair) {
	b := withStandby(t, p, nil)
	b.Create("job", Every(time.Hour))
	p.Replayed()
	b.reads("", "standby", 1)
	tries, reading := 0, new(pg.Reading)
	ctx := reading.Within(t.Context())
	_, err := pg.Past(ctx, b.DB.Callers, b.Tenant, func(ctx context.Context, q pg.Source) (int, error) {
		if tries++; q.Standby {
			Must(t, p.Standby.Crash())
		}
		return pg.One(ctx, q, pgx.RowTo[int], `SELECT count(*)::int FROM punctual.jobs`)
	})
	if err != nil || tries != 2 || !reading.AtHome() {
		t.Errorf("error %v after %d tries", err, tries)
	}
	for range 3 {
		b.reads("", "unusable", 1)
	}
	if n := strings.Count(b.log.String(), "the read database cannot be used"); n != 1 || b.DB.StandbyState().Usable {
		t.Errorf("logged %d times: %s", n, b.log)
	}
}

func goToNoOther(t *testing.T, p pair) {
	other := pgtest.DSN(t)
	for name, c := range map[string]struct{ url, says string }{
		"the primary":      {p.DSN, "not in recovery"},
		"another database": {other, "must be"},
		"nothing":          {"postgres://127.0.0.1:1/none", "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			b := withStandby(t, p, func(s *pg.Standby) { s.URL = c.url })
			b.reads("", "unusable", 0)
			if !strings.Contains(b.log.String(), c.says) {
				t.Errorf("logged: %s", b.log)
			}
		})
	}
}

// What a look of verify has found at the standby counts once, although the connection is cut and the look is repeated.
func verifyThere(t *testing.T, p pair) {
	between, through := pgtest.NewProxy(t, p.Copy)
	b := withStandby(t, p, func(s *pg.Standby) { s.URL = through })
	job, slots := AsReplica(b.Fixture).Lived("a")
	b.Exec(`DELETE FROM punctual.runs WHERE id = $1`, domain.SlotRunID(job, slots[2]))
	p.Replayed()
	between.CutAfter("GROUP BY waits_on")
	before := b.DB.StandbyState().Answers["standby"]
	lines, summary := b.Verified(func(o *history.VerifyOptions) {
		o.Job, o.From = job.String(), o.From.Add(-1000*time.Hour)
	})
	if fmt.Sprint(lines) != "[missing a]" || summary.AsOf == nil || between.Cuts() != 1 {
		t.Errorf("it found %v, as of %v; %d cuts", lines, summary.AsOf, between.Cuts())
	}
	notes := strings.Join(summary.Notes, " ")
	if strings.Count(notes, "no longer kept") != 1 || !strings.Contains(notes, "as of") {
		t.Errorf("it notes: %s", notes)
	}
	if n := b.DB.StandbyState().Answers["standby"]; n < before+2 {
		t.Errorf("the standby answered %d of its reads", n-before)
	}
}

// Which reads may go to the standby is decided here: another one has to show only what no longer changes.
func TestOnlyTheseReadsMayGoToAStandby(t *testing.T) {
	t.Parallel()
	found := map[string]int{}
	Must(t, filepath.WalkDir("..", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := os.ReadFile(file)
		if n := strings.Count(string(text), "pg.Past(") + strings.Count(string(text), "pg.PastSnapshot("); n > 0 {
			found[strings.TrimPrefix(file, "../store/")] = n
		}
		return err
	}))
	if diff := cmp.Diff(map[string]int{
		"audit/list.go": 1, "history/verify.go": 1, "jobs/forecast.go": 2, "runs/details.go": 1, "runs/list.go": 1,
		"runs/stats.go": 1,
	}, found); diff != "" {
		t.Errorf("reads that may go to a standby (-want +got):\n%s", diff)
	}
}

// A standby that accepts connections and says nothing costs its patience once. One that hangs later costs half of the
// time that the request has.
func waitOnce(t *testing.T, p pair) {
	between, through := pgtest.NewProxy(t, p.Copy)
	b := withStandby(t, p, func(s *pg.Standby) { s.URL = through })
	b.reads("", "standby", 0)
	between.StallAfter("pg_is_in_recovery")
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	if _, err := b.count(new(pg.Reading).Within(ctx), b.Tenant); err != nil {
		t.Errorf("a read that hung at the standby: %v", err)
	}
	between.Slow(time.Minute, 0)
	t.Cleanup(between.Heal)
	begun := time.Now()
	b.reads("", "unusable", 0)
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
	connections := between.Accepted()
	b.reads("", "unusable", 0)
	if n := between.Accepted(); n != connections {
		t.Errorf("it is asked again, over %d connections", n-connections)
	}
}

// What the standby does not know, or not as final, the primary tells.
func askForUnended(t *testing.T, p pair) {
	b := withStandby(t, p, nil)
	c := AsReplica(b.Fixture)
	signal := c.Manual("job")
	p.Replayed()
	p.OnStandby(`SELECT pg_wal_replay_pause()`)
	get := func(id uuid.UUID, want domain.Status, home bool) {
		t.Helper()
		reading := new(pg.Reading)
		run, err := b.Runs.GetRun(reading.Within(t.Context()), b.Tenant, id)
		if err != nil || run.Status != want || reading.AtHome() != home {
			t.Errorf("%s (%v), at the primary: %v", run.Status, err, reading.AtHome())
		}
	}
	get(signal.RunID, domain.StatusRunning, true)
	_, err := c.Claims.Finish(t.Context(), []domain.Outcome{Succeeded(signal)}, nil)
	Must(t, err)
	get(signal.RunID, domain.StatusSucceeded, true)
	later := c.Manual("later")
	get(later.RunID, domain.StatusRunning, true)
	p.OnStandby(`SELECT pg_wal_replay_resume()`)
	p.Replayed()
	get(signal.RunID, domain.StatusSucceeded, false)
}
