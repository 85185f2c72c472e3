package history_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/history"
	"punctual/store/jobs"
)

// elapse lets time pass by moving all stored times into the past. The time is a multiple of every period in use, so
// that slots stay slots.
func elapse(c Replica, by time.Duration) {
	c.T.Helper()
	c.Exec(`UPDATE punctual.jobs
		SET created_at = created_at - $1::interval,
			paused_until = paused_until - $1::interval, deleted_at = deleted_at - $1::interval`, by)
	c.Exec(`UPDATE punctual.job_versions SET valid_from = valid_from - $1::interval`, by)
	c.Exec(`UPDATE punctual.schedules
		SET scheduled_for = scheduled_for - $1::interval, next_run_at = next_run_at - $1::interval`, by)
	for _, field := range []string{"at", "starts_at", "ends_at"} {
		c.Exec(`UPDATE punctual.job_versions
			SET definition = jsonb_set(definition::jsonb, ARRAY['schedule', $2::text], to_jsonb(to_char(
				((definition #>> ARRAY['schedule', $2::text])::timestamptz - $1::interval) AT TIME ZONE 'UTC',
				'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')))::json
			WHERE definition #>> ARRAY['schedule', $2::text] IS NOT NULL`, by, field)
	}
	c.Definitions.Forget() // only here do stored definitions ever change
	moveRuns(c, by)
}

// moveRuns writes the runs again, with the ids that belong to their new times.
func moveRuns(c Replica, by time.Duration) {
	c.T.Helper()
	rows, err := c.DB.Callers.Query(c.T.Context(), `SELECT id, job_id, scheduled_for,
			skipped_first IS NULL AND trigger IN ('schedule', 'catchup')
		FROM punctual.runs`)
	Must(c.T, err)
	defer rows.Close()
	var old, moved []uuid.UUID
	for rows.Next() {
		var id, job uuid.UUID
		var slot time.Time
		var derived bool
		Must(c.T, rows.Scan(&id, &job, &slot, &derived))
		fresh := domain.NewRunID(domain.IDTime(id).Add(-by))
		if derived {
			fresh = domain.SlotRunID(job, slot.Add(-by))
		}
		old, moved = append(old, id), append(moved, fresh)
	}
	rows.Close()
	c.Exec(`CREATE TABLE punctual.moved AS SELECT * FROM punctual.runs`)
	c.Exec(`DELETE FROM punctual.runs`)
	c.Exec(`UPDATE punctual.moved r
		SET id = m.moved, scheduled_for = scheduled_for - $3::interval, due_at = due_at - $3::interval,
			created_at = created_at - $3::interval, claimed_at = claimed_at - $3::interval,
			started_at = started_at - $3::interval, finished_at = finished_at - $3::interval,
			skipped_first = skipped_first - $3::interval,
			skipped_last = skipped_last - $3::interval
		FROM unnest($1::uuid[], $2::uuid[]) AS m(old, moved)
		WHERE r.id = m.old`, old, moved, by)
	c.Exec(`INSERT INTO punctual.runs SELECT * FROM punctual.moved`)
	c.Exec(`DROP TABLE punctual.moved`)
	// A run may get the id that another run is about to give up, so the key cannot be updated in place.
	for _, table := range []string{"ready", "attempts"} {
		c.Exec(`CREATE TABLE punctual.moved AS SELECT * FROM punctual.` + table)
		c.Exec(`DELETE FROM punctual.` + table)
		c.Exec(`UPDATE punctual.moved y SET run_id = m.moved
			FROM unnest($1::uuid[], $2::uuid[]) AS m(old, moved)
			WHERE y.run_id = m.old`, old, moved)
		c.Exec(`INSERT INTO punctual.` + table + ` SELECT * FROM punctual.moved`)
		c.Exec(`DROP TABLE punctual.moved`)
	}
	for _, column := range []string{"active_run", "waiting_run"} {
		c.Exec(fmt.Sprintf(`UPDATE punctual.exclusive y SET %[1]s = m.moved
			FROM unnest($1::uuid[], $2::uuid[]) AS m(old, moved)
			WHERE y.%[1]s = m.old`, column), old, moved)
	}
}

// life is a random sequence of events in the life of jobs.
type life struct {
	Replica
	rand *rand.Rand
	jobs []string
	log  []string
}

func (l *life) note(format string, args ...any) {
	l.log = append(l.log, fmt.Sprintf(format, args...))
}

func (l *life) schedule(d *jobspec.Definition) {
	now := time.Now().Truncate(time.Microsecond) // elapse moves instants in whole microseconds
	d.Schedule = jobspec.Schedule{}
	switch l.rand.IntN(7) {
	case 0, 1:
		d.Schedule.Every = jobspec.DurationOf(Pick(l.rand, 10*time.Second, time.Minute, 30*time.Second))
	case 2, 3:
		d.Schedule.Cron = Pick(l.rand, "* * * * *", "*/10 * * * * *")
		d.Schedule.Timezone = Pick(l.rand, "", "Europe/Berlin", "America/St_Johns")
	case 4:
		d.Schedule.At = jobspec.InstantOf(now.Add(time.Duration(l.rand.IntN(1200)-100) * time.Second))
	case 5:
		d.Schedule.Delay = jobspec.DurationOf(time.Duration(1+l.rand.IntN(600)) * time.Second)
	case 6:
		d.Schedule.Every = jobspec.DurationOf(time.Minute)
		if l.rand.IntN(2) == 0 {
			d.Schedule.StartsAt = jobspec.InstantOf(now.Add(time.Duration(l.rand.IntN(600)) * time.Second))
		}
		d.Schedule.EndsAt = jobspec.InstantOf(now.Add(time.Duration(600+l.rand.IntN(1200)) * time.Second))
	}
}

func (l *life) jitter(d *jobspec.Definition) {
	d.Jitter = jobspec.Duration{}
	if l.rand.IntN(2) == 0 {
		d.Jitter = jobspec.DurationOf(time.Duration(l.rand.IntN(40)) * time.Second)
	}
}

func (l *life) definition(name string) jobspec.Definition {
	return Definition(name, l.schedule, l.jitter, func(d *jobspec.Definition) {
		d.Missed.Policy = Pick(l.rand, jobspec.MissedSkip, jobspec.MissedFireOnce, jobspec.MissedFireAll)
		d.Missed.Window = jobspec.DurationOf(Pick(l.rand, time.Minute, 5*time.Minute, time.Hour))
		d.ConcurrencyPolicy = Pick(l.rand, jobspec.PolicyAllow, jobspec.PolicyForbid,
			jobspec.PolicyReplace, jobspec.PolicyWait)
		if l.rand.IntN(4) == 0 {
			d.ExpiresAfter = jobspec.DurationOf(time.Duration(1+l.rand.IntN(300)) * time.Second)
		}
	})
}

// step does one random thing to a job. The job's state need not allow it.
func (l *life) step() {
	ctx, name := l.T.Context(), l.jobs[l.rand.IntN(len(l.jobs))]
	var err error
	switch l.rand.IntN(12) {
	case 0:
		d := l.definition(name)
		l.note("put %s %+v", name, d.Schedule)
		_, _, err = l.Jobs.PutJob(ctx, l.Tenant, name,
			jobs.NewJob{Definition: d, Paused: Pick(l.rand, nil, new(bool), new(true))}, nil, false)
	case 1, 2:
		change := Pick(l.rand, l.schedule, l.jitter,
			func(d *jobspec.Definition) { d.Description += "." }, func(*jobspec.Definition) {})
		put := l.rand.IntN(2) == 0
		l.note("edit %s, put %t", name, put)
		if put {
			var job jobs.Record
			if job, err = l.Jobs.GetJob(ctx, l.Tenant, name); err == nil {
				change(&job.Definition)
				_, err = l.TryPut(job.Definition)
			}
			break
		}
		_, err = l.TryEdit(name, change)
	case 3, 4:
		l.note("pause %s", name)
		_, err = l.Jobs.PauseJob(ctx, l.Tenant, name, Pick(l.rand, "", "why"), nil)
	case 5, 6:
		l.note("resume %s", name)
		_, err = l.Jobs.ResumeJob(ctx, l.Tenant, name, Pick(l.rand, "", "why"))
	case 7:
		if l.rand.IntN(3) == 0 {
			l.note("delete %s", name)
			err = l.Jobs.DeleteJob(ctx, l.Tenant, name, nil, false)
		}
	default:
		by := time.Duration(1+l.rand.IntN(8)) * time.Minute
		l.note("elapse %s", by)
		elapse(l.Replica, by)
		for range l.rand.IntN(4) {
			l.note("claim")
			l.claimAll()
		}
	}
	if _, is := errors.AsType[*pgconn.PgError](err); is || errors.Is(err, context.DeadlineExceeded) {
		l.T.Fatalf("%s: %v", l.log[len(l.log)-1], err)
	}
	if err != nil { // the state does not allow it
		l.note("    %v", err)
	}
}

// claimAll claims the due slots. Half the time, it lets all unfinished runs succeed.
func (l *life) claimAll() {
	for _, older := range []bool{true, false} {
		batch, err := l.Claims.ClaimDue(l.T.Context(), l.Asks(100, older))
		Must(l.T, err)
		l.note("claimed %d, settled %d", len(batch.Runs), batch.Settled)
	}
	if l.rand.IntN(2) == 0 {
		l.Exec(`DELETE FROM punctual.ready`)
		l.Exec(`UPDATE punctual.runs SET status = 'succeeded', reason = NULL, finished_at = now(),
			fence = coalesce(fence, nextval('punctual.fences')) WHERE finished_at IS NULL`)
		l.Exec(`DELETE FROM punctual.claims`)
	}
}

func TestWhateverHappensToJobsVerifyExplainsIt(t *testing.T) {
	t.Parallel()
	seed, lives := uint64(1), uint64(8) // the same lives each time; SEED=… tries others
	if testing.Short() {
		lives = 1
	}
	if text := os.Getenv("SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	for n := range lives {
		t.Run(fmt.Sprint(seed+n), func(t *testing.T) {
			l := life{Replica: NewReplica(t), rand: rand.New(rand.NewPCG(seed+n, 0)), jobs: []string{"a", "b", "c", "d"}}
			l.PartitionsBack(2)
			for _, name := range l.jobs {
				l.Put(l.definition(name))
			}
			for range 30 {
				l.step()
			}
			got, summary := l.Verified(func(o *history.VerifyOptions) { o.Grace = 1000 * time.Hour })
			if len(got) > 0 {
				t.Errorf("SEED=%d: violations %q of %d slots", seed+n, got, summary.Slots)
				for _, line := range l.log {
					t.Log(line)
				}
				_, _ = l.Verified(func(o *history.VerifyOptions) {
					o.Grace = 1000 * time.Hour
					o.Report = func(v history.Violation) error { t.Logf("%+v slot %v last %v", v, v.Slot, v.Last); return nil }
				})
			}
			t.Logf("%d slots, %d runs, %d skips, %d waiting, %d not checkable",
				summary.Slots, summary.Runs, summary.Skips, summary.Waiting, summary.NotCheckable)
		})
	}
}
