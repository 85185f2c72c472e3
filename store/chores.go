package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/scheduler"
	"punctual/store/archive"
	"punctual/store/aside"
	"punctual/store/claim"
	"punctual/store/events"
	"punctual/store/flow"
	"punctual/store/jobs"
	"punctual/store/letters"
	"punctual/store/notices"
	"punctual/store/pg"
	"punctual/store/reports"
)

const choreReports = "reports"

// askedOfOthers are the chores that the scheduler has itself, and when a heartbeat asks for them.
var askedOfOthers = []scheduler.Chore{
	{Name: scheduler.ChoreNotices, Due: `EXISTS (SELECT FROM punctual.notices WHERE tell_at <= now())
           OR EXISTS (SELECT FROM punctual.notified WHERE look_at <= now())
           OR ` + notices.OutboxDue},
	{Name: scheduler.ChoreLifecycle, Due: notices.AnyLifecycle},
	{Name: scheduler.ChoreHolds, Due: `EXISTS (` + claim.Unheld + `)`},
}

// choresDue lists, for a heartbeat, the chores for which there is work now or in the next two seconds. So an idle
// replica sends no other query for them. choresAsked are their names.
var choresDue, choresAsked = func() (due string, names []string) {
	for _, c := range slices.Concat(new(Store).Chores(), askedOfOthers) {
		if c.Due == "" {
			continue
		}
		names = append(names, c.Name)
		due += `CASE WHEN ` + c.Due + ` THEN '` + c.Name + `' END, `
	}
	return `array_remove(ARRAY[` + strings.TrimSuffix(due, ", ") + `], NULL)`, names
}()

// choresSoon lists, for each look for due work, those of them whose work callers write in SQL.
const choresSoon = `
array_remove(ARRAY[
    CASE WHEN ` + reports.Fresh + ` THEN '` + choreReports + `' END,
    CASE WHEN ` + events.Any + ` THEN '` + events.Chore + `' END], NULL)`

// choresAlways lists them all.
const choresAlways = `ARRAY['` + choreReports + `', '` + events.Chore + `']`

// Chores returns what every replica does beside its claims.
func (s *Store) Chores() []scheduler.Chore {
	return []scheduler.Chore{
		{
			Name: claim.ChoreSilent, Does: "ending attempts whose targets are silent",
			Due: claim.AnySilent, Batch: s.Claims.EndSilent,
		},
		{Name: claim.ChoreWorkflows, Does: "letting workflows continue", Due: flow.Due, Batch: s.Workflows.Advance},
		{
			Name: choreReports, Does: "ending runs as their targets have reported",
			Due: reports.Any, Batch: atOnce(s.Reports.Apply),
		},
		{Name: jobs.ChorePauses, Does: "ending pauses", Due: jobs.AnyPauseOver, Batch: s.Jobs.EndDuePauses},
		{Name: jobs.ChoreDated, Does: "fitting dated runs to their jobs", Due: jobs.AnyDatedWork, Batch: s.Jobs.FitDated},
		{Name: events.Chore, Does: "fanning events out", Due: events.Any, Batch: s.Events.FanOut},
		{
			Name: letters.Chore, Does: "work on operations",
			Due: `EXISTS (SELECT FROM punctual.operations WHERE state = 'running')`, Batch: s.Letters.Operate,
		},
		{
			Name: "gates", Does: "freeing the gates of jobs",
			Due:   `(SELECT job_id FROM punctual.exclusive WHERE earlier_runs IS NOT NULL ORDER BY job_id LIMIT 1) IS NOT NULL`,
			Batch: atOnce(s.Claims.FreeGates),
		},
		{Name: aside.Chore, Does: "trying again what was set aside", Due: aside.AnyDue, Batch: atOnce(s.tryAside)},
		{
			Name: claim.ChoreLimits, Does: "setting due what waits at limits",
			Due: claim.LimitsDue, Batch: atOnce(s.Claims.ReleaseLimits),
		},
		{
			Name: "service", Does: "noting which queues are served", Every: 10 * time.Second,
			Batch: atOnce(s.Replicas.NoteService),
		},
		{Name: "maintenance", Does: "maintenance", Every: time.Minute, Batch: atOnce(s.maintain)},
		{Name: "hours", Does: "counting the runs of hours", Every: time.Minute, Batch: s.Overview.CountHours},
		{Name: "usage", Does: "summing the usage of days", Every: 10 * time.Minute, Batch: s.Overview.CountUsage},
		{
			Name: "overlapping", Does: "finding jobs whose slots are skipped", Every: time.Minute,
			Batch: atOnce(s.findOverlapping),
		},
		{Name: archive.Chore, Does: "archiving days of runs", Every: time.Minute, Batch: atOnce(s.Archives.Work)},
		{Name: "tidying", Does: "removing data past its retention", Every: time.Minute, Batch: atOnce(s.tidyUp)},
	}
}

// atOnce is a batch of work whose next batch waits for nothing.
func atOnce(batch func(context.Context) (left bool, err error)) func(context.Context) (time.Duration, bool, error) {
	return func(ctx context.Context) (time.Duration, bool, error) {
		left, err := batch(ctx)
		return 0, left, err
	}
}

// maintain does what is soon done and may be done by several replicas at once, such as creating partitions ahead. A
// part that fails does not keep the others from being done. What may take long is in tidyUp.
func (s *Store) maintain(ctx context.Context) (left bool, err error) {
	_, partitions := s.Days.Ensure(ctx, s.DB.Chores)
	if partitions != nil {
		s.alarm(ctx)
	}
	cancels := s.Claims.ForgetCancels(ctx)
	allowances := s.Claims.ForgetAllowances(ctx)
	used := s.Tenants.NoteKeysUsed(ctx)
	gates := s.Claims.CheckGates(ctx)
	seen := s.Replicas.NoteReplicas(ctx)
	return false, errors.Join(partitions, gates, cancels, allowances, used, seen, s.Replicas.WarnOfUnserved(ctx))
}

// alarm logs an error if there will soon be no partition for new runs.
func (s *Store) alarm(ctx context.Context) {
	if ahead, err := s.Days.Ahead(ctx); err == nil && ahead < 2 {
		s.Options.Log.Error("partitions are about to run out: a run cannot be written without the partition of its day",
			"days_ahead", ahead)
	}
}

// tidying is which replica tidies.
type tidying struct {
	busy sync.Mutex
	at   time.Time // tidied_at as this replica wrote it
}

// tidyUp removes what is older than its retention, as fast as it accumulates, and computes next slots again after the
// time zone data has changed. Each minute one of all replicas does so. left is true if there is more to do at once.
func (s *Store) tidyUp(ctx context.Context) (left bool, err error) {
	_, zones := s.Jobs.Rezone(ctx)
	if mine, err := s.takeTidying(ctx); err != nil || !mine {
		return false, errors.Join(zones, err)
	}
	failed := []error{zones, s.Tenants.WarnOfKeys(ctx)}
	parts := []func(context.Context) (int, bool, error){
		s.Claims.Sweep, s.Jobs.SweepDated, s.Jobs.ForgetCompletedJobs, s.Jobs.PurgeJobs, s.Jobs.ForgetVersions,
		s.Events.Forget, s.Notices.EndIncidents, s.Notices.Forget, s.Secrets.ForgetOfDeleted, s.Audit.Forget,
		s.Changes.Forget, s.Archives.Forget,
	}
	for table := range s.kept() {
		parts = append(parts, func(ctx context.Context) (int, bool, error) { return s.ForgetOld(ctx, table) })
	}
	for _, part := range parts {
		_, more, err := withinTurn(ctx, part)
		left, failed = left || more, append(failed, err)
	}
	failed = append(failed, s.Days.Retire(ctx)) // last, because it may take minutes
	return left, errors.Join(failed...)
}

// turn is how long one part of the tidying may take. Each begins no further batch after half of it, so a part that
// takes longer hangs at some row, and keeps no other from its turn.
const turn = 20 * time.Second

func withinTurn(ctx context.Context, part func(context.Context) (int, bool, error)) (int, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, turn)
	defer cancel()
	return part(ctx)
}

// takeTidying reports whether this replica is to tidy: it was the last to do so, or no replica has in the last minute.
func (s *Store) takeTidying(ctx context.Context) (mine bool, err error) {
	s.tidying.busy.Lock()
	defer s.tidying.busy.Unlock()
	err = s.DB.Chores.QueryRow(ctx, `
		UPDATE punctual.deployment SET tidied_at = clock_timestamp()
		WHERE tidied_at < now() - interval '50 s' OR tidied_at = $1
		RETURNING tidied_at`,
		s.tidying.at).Scan(&s.tidying.at)
	mine, err = pg.Some(err)
	return mine, pg.Wrap("beginning to tidy", err)
}

// findOverlapping looks for jobs whose slots are skipped, unless a replica has done so in the last minutes.
func (s *Store) findOverlapping(ctx context.Context) (left bool, err error) {
	mine, err := pg.All(ctx, s.DB.Chores, pgx.RowTo[bool], `
		UPDATE punctual.deployment SET overlaps_sought_at = now() WHERE overlaps_sought_at <= now() - $1::interval
		RETURNING true`, notices.OverlappingEvery)
	if err != nil || len(mine) == 0 {
		return false, pg.Wrap("beginning to look for jobs whose slots are skipped", err)
	}
	return false, s.Notices.FindOverlapping(ctx)
}

// watchdogEvery is the least time between two calls of the watchdog.
const watchdogEvery = 45 * time.Second

// CallWatchdog calls the watchdog, unless a replica has just reached it. Two replicas that find so together both call,
// which harms no watchdog.
func (s *Store) CallWatchdog(ctx context.Context, call func(context.Context) error) error {
	conns := s.DB.Chores
	var due bool
	err := conns.QueryRow(ctx, `SELECT watchdog_called_at <= now() - $1::interval FROM punctual.deployment`,
		watchdogEvery).Scan(&due)
	if err != nil || !due {
		return pg.Wrap("looking when the watchdog was called", err)
	}
	if err := call(ctx); err != nil {
		return fmt.Errorf("the watchdog: %w", err)
	}
	return pg.Wrap("noting that the watchdog was called",
		pg.Exec(ctx, conns, `UPDATE punctual.deployment SET watchdog_called_at = now()`))
}
