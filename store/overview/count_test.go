package overview

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	"punctual/scheduler/domain"
	"punctual/store/pg"
	"punctual/store/runs"
)

// board is a Board with a database of its own, which counts ten runs at a time.
type board struct {
	*Board
	t     *testing.T
	begin time.Time // of an hour that has been over for more than an hour, and for less than four
}

func newBoard(t *testing.T) board {
	t.Helper()
	t.Parallel()
	return openBoard(t, pgtest.DSN(t))
}

func openBoard(t *testing.T, dsn string) board {
	t.Helper()
	db, err := pg.Open(t.Context(), pg.Config{URL: dsn, MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	b := board{Board: &Board{db: db, batch: 10}, t: t}
	if err := db.Callers.QueryRow(t.Context(),
		`SELECT date_trunc('hour', now(), 'UTC') - interval '2 hours'`).Scan(&b.begin); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b board) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.db.Callers.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

// run writes n runs of a tenant, some minutes into the hour. Each was sent the given time after it was due.
func (b board) run(tenant int32, n int, minutes float64, status, trigger string, late time.Duration, set ...string) {
	b.t.Helper()
	slot := b.begin.Add(time.Duration(minutes * float64(time.Minute)))
	for range n {
		id := domain.NewRunID(slot)
		b.exec(`INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, started_at, finished_at, tenant, job_version,
				lane, attempt, status, reason, trigger, fence)
			VALUES ($1, gen_random_uuid(), $2, $2, $2::timestamptz + $3::interval,
				CASE WHEN $5 IN ('succeeded', 'dead', 'skipped', 'cancelled') THEN now() END, $4, 1, 5, 1, $5,
				CASE WHEN $5 = 'skipped' THEN 'missed' END, $6, 1)`, id, slot, late, tenant, status, trigger)
		for _, change := range set {
			b.exec(`UPDATE punctual.runs SET `+change+` WHERE id = $1`, id)
		}
	}
}

// count counts until nothing is left, and returns how many batches that took.
func (b board) count() (batches int) {
	b.t.Helper()
	const most = 200
	for ; batches < most; batches++ {
		_, left, err := b.CountHours(b.t.Context())
		if err != nil {
			b.t.Fatal(err)
		}
		if !left {
			return batches
		}
	}
	b.t.Fatalf("counting does not end")
	return batches
}

// again makes the test's hour due for counting, and no other.
func (b board) again() {
	b.exec(`UPDATE punctual.counted_hours SET next_at = CASE WHEN hour = $1 THEN now() ELSE 'infinity' END`, b.begin)
}

func (b board) day(tenant int32) DayOfRuns {
	b.t.Helper()
	var batch pgx.Batch
	var day DayOfRuns
	queueDay(&batch, &day, tenant)
	if err := b.db.Callers.Reader(tenant).SendBatch(b.t.Context(), &batch).Close(); err != nil {
		b.t.Fatal(err)
	}
	if len(day.Hours) != shownHours {
		b.t.Fatalf("%d hours", len(day.Hours))
	}
	return day
}

// hour returns what a tenant sees of the test's hour, in words.
func (b board) hour(tenant int32) string {
	b.t.Helper()
	for _, h := range b.day(tenant).Hours {
		if !h.Hour.Equal(b.begin) {
			continue
		}
		if h.CountedAt == nil {
			return "not counted"
		}
		return fmt.Sprintf("%s, %d timely", became(h.Outcomes), h.Lateness.Runs)
	}
	b.t.Fatalf("the day does not have %s", b.begin)
	return ""
}

func became(o runs.Outcomes) string {
	return fmt.Sprintf("%d succeeded, %d dead, %d cancelled, %d skipped, %d unended",
		o.Succeeded, o.Dead, o.Cancelled, o.Skipped, o.Unended)
}

func (b board) want(tenant int32, hour string) {
	b.t.Helper()
	if diff := cmp.Diff(hour, b.hour(tenant)); diff != "" {
		b.t.Errorf("tenant %d (-want +got): %s", tenant, diff)
	}
}

const nothing = "0 succeeded, 0 dead, 0 cancelled, 0 skipped, 0 unended, 0 timely"

func TestTheLastDayIsCountedByHour(t *testing.T) {
	b := newBoard(t)
	b.want(1, "not counted")
	if day := b.day(1); day.CountedAt != nil || day.SuccessRate != nil || day.Lateness.P99 != nil {
		t.Errorf("before anything is counted: %+v", day)
	}
	b.count()
	b.want(1, nothing)
	b.run(1, 6, 1, "succeeded", "schedule", 3*time.Millisecond)
	b.run(1, 1, 59.99, "succeeded", "catchup", 2*time.Minute)
	b.run(1, 1, 0, "dead", "manual", 0, `attempt = 3`) // when its first attempt was sent is not in its row
	b.run(1, 1, 7, "cancelled", "schedule", 0, `started_at = NULL`)
	b.run(1, 2, 7, "skipped", "schedule", 0, `started_at = NULL, attempt = 0`)
	b.run(1, 1, 8, "retrying", "schedule", 0, `attempt = 1`)
	b.run(1, 1, 9, "succeeded", "backfill", time.Hour)
	b.run(1, 1, 9, "succeeded", "replay", time.Hour)
	b.run(1, 1, -0.01, "dead", "schedule", 0) // of the hour before
	b.run(1, 1, 60, "dead", "schedule", 0)    // of the hour after
	b.run(2, 12, 2, "dead", "schedule", 0)
	b.exec(`UPDATE punctual.counted_hours SET next_at = now()`)
	b.count()
	b.want(1, "9 succeeded, 1 dead, 1 cancelled, 2 skipped, 1 unended, 8 timely")
	b.want(2, "0 succeeded, 12 dead, 0 cancelled, 0 skipped, 0 unended, 12 timely")
	b.want(3, nothing)
	day := b.day(1)
	if became(day.Outcomes) != "9 succeeded, 3 dead, 1 cancelled, 2 skipped, 1 unended" || *day.SuccessRate != 0.75 ||
		day.Lateness.Runs != 10 || *day.Lateness.P50 != 0.00308 || *day.Lateness.P99 < 108 || *day.Lateness.P99 > 132 ||
		day.CountedAt == nil || !day.From.Equal(day.Hours[0].Hour) {
		t.Errorf("the day: %s, success %g, lateness %d, %g, %g", became(day.Outcomes), *day.SuccessRate, day.Lateness.Runs,
			*day.Lateness.P50, *day.Lateness.P99)
	}
}

// A run that ends, or is sent, after its hour was counted is counted all the same, once.
func TestWhatEndsLateIsCountedLater(t *testing.T) {
	b := newBoard(t)
	b.run(1, 25, 5, "running", "schedule", 0) // a large hour: three batches
	if n := b.count(); n < shownHours+2 {
		t.Errorf("%d batches for %d hours, one of them with three", n, shownHours)
	}
	b.want(1, "0 succeeded, 0 dead, 0 cancelled, 0 skipped, 25 unended, 25 timely")
	b.exec(`UPDATE punctual.runs SET status = 'succeeded', finished_at = now()`)
	b.run(1, 1, 4, "succeeded", "catchup", 2*time.Hour)
	b.again()
	if _, left, err := b.CountHours(t.Context()); err != nil || !left {
		t.Fatal(left, err)
	}
	// Until a round is complete, the one before holds.
	b.want(1, "0 succeeded, 0 dead, 0 cancelled, 0 skipped, 25 unended, 25 timely")
	b.count()
	b.want(1, "26 succeeded, 0 dead, 0 cancelled, 0 skipped, 0 unended, 26 timely")
	var rounds int
	if err := b.db.Callers.QueryRow(t.Context(), `SELECT count(DISTINCT round)
		FROM punctual.hourly_runs WHERE hour = $1`, b.begin).Scan(&rounds); err != nil || rounds != 1 {
		t.Errorf("%d rounds are kept (%v)", rounds, err)
	}
}

// A large hour is counted on from where it was counted to. What was counted before stays.
func TestALargeHourIsCountedOn(t *testing.T) {
	b := newBoard(t)
	b.run(1, 12, 5, "succeeded", "schedule", 0)
	b.run(2, 1, 5, "dead", "schedule", 0)
	b.count()
	// As though the hour had not been over: it is counted up to its middle.
	b.exec(`UPDATE punctual.counted_hours SET through = $2 WHERE hour = $1`, b.begin,
		domain.FirstRunID(b.begin.Add(30*time.Minute)))
	b.again()
	b.exec(`UPDATE punctual.runs SET status = 'dead' WHERE tenant = 1`) // is not looked at again now
	b.run(1, 3, 40, "dead", "schedule", 0)
	b.run(3, 1, 40, "succeeded", "schedule", 0)
	b.count()
	b.want(1, "12 succeeded, 3 dead, 0 cancelled, 0 skipped, 0 unended, 15 timely")
	b.want(2, "0 succeeded, 1 dead, 0 cancelled, 0 skipped, 0 unended, 1 timely")
	b.want(3, "1 succeeded, 0 dead, 0 cancelled, 0 skipped, 0 unended, 1 timely")
}

// A replica may die at any point of a batch. What it has not committed, the next one does.
func TestTheNextReplicaCountsOn(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	first, second := openBoard(t, dsn), openBoard(t, dsn)
	first.run(1, 25, 5, "succeeded", "schedule", 0)
	first.exec(`
		CREATE SEQUENCE punctual.tries;
		CREATE FUNCTION punctual.die_at_third() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF nextval('punctual.tries') = 3 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
			RETURN NEW;
		END $$;
		CREATE TRIGGER die_at_third BEFORE INSERT ON punctual.hourly_runs FOR EACH ROW
			EXECUTE FUNCTION punctual.die_at_third()`)
	var died error
	for left := true; left && died == nil; {
		_, left, died = first.CountHours(t.Context())
	}
	if died == nil || !strings.Contains(died.Error(), "counting the runs of an hour") {
		t.Fatalf("the first replica: %v", died)
	}
	second.want(1, "not counted")
	// The session that died may keep its locks for a moment, and another replica does not wait for them.
	for bound := time.Now().Add(30 * time.Second); second.hour(1) == "not counted" && time.Now().Before(bound); {
		second.count()
	}
	second.want(1, "25 succeeded, 0 dead, 0 cancelled, 0 skipped, 0 unended, 25 timely")
}

// While a replica counts, the others leave the counting to it. They do not wait.
func TestOneReplicaCountsAtATime(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	first, second := openBoard(t, dsn), openBoard(t, dsn)
	_, _, err := first.alone(t.Context(), "counted_hours", time.Minute, func(tx *pg.Tx, _ time.Time) (bool, error) {
		if h, err := takeHour(t.Context(), tx); err != nil || h == nil {
			t.Fatalf("the first replica: %v, %v", h, err)
		}
		if n := second.count(); n != 0 {
			t.Errorf("the second replica counts %d batches", n)
		}
		return false, tx.Rollback(t.Context()) // it dies
	})
	if err == nil {
		t.Error("the transaction was committed")
	}
	if n := second.count(); n < shownHours {
		t.Errorf("then it counts %d hours", n)
	}
}

// After a failover the database's clock may be behind. Hours that were counted by a clock ahead are counted anew.
func TestAClockThatWasSetBackHoldsNothingUp(t *testing.T) {
	b := newBoard(t)
	b.count()
	b.run(1, 25, 5, "succeeded", "schedule", 0)
	b.exec(`UPDATE punctual.counted_hours SET counted_at = now() + interval '3 hours', next_at = 'infinity'`)
	b.exec(`INSERT INTO punctual.counted_hours (hour) VALUES ($1::timestamptz + interval '5 hours')`, b.begin)
	b.count()
	b.want(1, "25 succeeded, 0 dead, 0 cancelled, 0 skipped, 0 unended, 25 timely")
	var ahead int
	if err := b.db.Callers.QueryRow(t.Context(), `SELECT count(*)
		FROM punctual.counted_hours WHERE counted_at > now() OR hour > now() AND shown > 0`).Scan(&ahead); err != nil ||
		ahead != 0 {
		t.Errorf("%d hours are counted ahead of the clock (%v)", ahead, err)
	}
}

// The history of hours outlives the day that the overview shows.
func TestAnHourIsCountedForTheLastTimeAfterADay(t *testing.T) {
	b := newBoard(t)
	b.exec(`INSERT INTO punctual.counted_hours (hour) SELECT $1::timestamptz - n * interval '1 hour'
		FROM unnest(ARRAY[23, 26]) n`, b.begin)
	b.count()
	for hours, want := range map[int]bool{23: true, 26: false} {
		var counted bool
		if err := b.db.Callers.QueryRow(t.Context(), `SELECT shown > 0 FROM punctual.counted_hours WHERE hour = $1`,
			b.begin.Add(-time.Duration(hours)*time.Hour)).Scan(&counted); err != nil || counted != want {
			t.Errorf("the hour %d hours before is counted: %t (%v)", hours, counted, err)
		}
	}
}
