package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/scheduler"
	"punctual/store/archive"
	"punctual/store/aside"
	"punctual/store/claim"
	"punctual/store/events"
	"punctual/store/jobs"
	"punctual/store/letters"
	"punctual/store/notices"
	"punctual/store/pg"
	"punctual/store/reports"
)

// The names of the chores for which a heartbeat asks.
const (
	choreGates   = "gates"
	choreReports = "reports"
)

// asked are the chores for which a heartbeat asks: each has work if a condition in SQL is true.
var asked = []struct{ chore, due string }{
	{claim.ChoreSilent, claim.AnySilent},
	{claim.ChoreWorkflows, claim.WorkflowsDue},
	{choreReports, reports.Any},
	{jobs.ChorePauses, jobs.AnyPauseOver},
	{jobs.ChoreDated, jobs.AnyDatedWork},
	{events.Chore, events.Any},
	{letters.Chore, `EXISTS (SELECT FROM punctual.operations WHERE state = 'running')`},
	{scheduler.ChoreNotices, `EXISTS (SELECT FROM punctual.notices WHERE tell_at <= now())
           OR EXISTS (SELECT FROM punctual.notified WHERE look_at <= now())
           OR ` + notices.OutboxDue},
	{scheduler.ChoreLifecycle, notices.AnyLifecycle},
	{scheduler.ChoreHolds, `EXISTS (` + claim.Unheld + `)`},
	{
		choreGates,
		`(SELECT job_id FROM punctual.exclusive WHERE earlier_runs IS NOT NULL ORDER BY job_id LIMIT 1) IS NOT NULL`,
	},
	{aside.Chore, aside.AnyDue},
	{claim.ChoreLimits, claim.LimitsDue},
}

// choresDue lists, for a heartbeat, the chores for which there is work now or in the next two seconds. So an idle
// replica sends no other query for them. choresAsked are their names.
var choresDue, choresAsked = func() (due string, names []string) {
	for _, a := range asked {
		names = append(names, a.chore)
		due += `CASE WHEN ` + a.due + ` THEN '` + a.chore + `' END, `
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
		{Name: claim.ChoreSilent, Does: "ending attempts whose targets are silent", Batch: s.Claims.EndSilent},
		{Name: claim.ChoreWorkflows, Does: "letting workflows continue", Batch: s.Claims.AdvanceWorkflows},
		{Name: choreReports, Does: "ending runs as their targets have reported", Batch: atOnce(s.Reports.Apply)},
		{Name: jobs.ChorePauses, Does: "ending pauses", Batch: s.Jobs.EndDuePauses},
		{Name: jobs.ChoreDated, Does: "fitting dated runs to their jobs", Batch: s.Jobs.FitDated},
		{Name: events.Chore, Does: "fanning events out", Batch: s.Events.FanOut},
		{Name: letters.Chore, Does: "work on operations", Batch: s.Letters.Operate},
		{Name: choreGates, Does: "freeing the gates of jobs", Batch: atOnce(s.Claims.FreeGates)},
		{Name: aside.Chore, Does: "trying again what was set aside", Batch: atOnce(s.tryAside)},
		{Name: claim.ChoreLimits, Does: "setting due what waits at limits", Batch: atOnce(s.Claims.ReleaseLimits)},
		{
			Name: "service", Does: "noting which queues are served", Every: 10 * time.Second,
			Batch: atOnce(s.Claims.NoteService),
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
	seen := s.Claims.NoteReplicas(ctx)
	return false, errors.Join(partitions, gates, cancels, allowances, used, seen, s.Claims.WarnOfUnserved(ctx))
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
	for _, chore := range []func(context.Context) (int, bool, error){
		s.Claims.Sweep, s.Jobs.SweepDated, s.ForgetIdempotencyKeys, s.Jobs.ForgetCompletedJobs, s.Jobs.PurgeJobs,
		s.Jobs.ForgetVersions, s.Jobs.ForgetSequences,
		s.Letters.ForgetDeadLetters, s.Letters.ForgetOperations, s.Events.Forget, s.Overview.ForgetHours,
		s.Overview.ForgetUsage, s.ForgetService, s.ForgetReplicas,
		s.Notices.EndIncidents, s.Notices.Forget, s.Secrets.ForgetOfDeleted, s.Audit.Forget,
		s.ForgetReports, s.Changes.Forget, s.Archives.Forget, s.Aside.Forget,
	} {
		_, more, err := withinTurn(ctx, chore)
		left, failed = left || more, append(failed, err)
	}
	failed = append(failed, s.Days.Retire(ctx)) // last, because it may take minutes
	return left, errors.Join(failed...)
}

// turn is how long one part of the tidying may take. Each begins no further batch after half of it, so a part that
// takes longer hangs at some row, and keeps no other from its turn.
const turn = 20 * time.Second

func withinTurn(ctx context.Context, chore func(context.Context) (int, bool, error)) (int, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, turn)
	defer cancel()
	return chore(ctx)
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

// ForgetIdempotencyKeys deletes keys older than 24 hours.
func (s *Store) ForgetIdempotencyKeys(ctx context.Context) (forgotten int, left bool, err error) {
	return pg.ForgetOld(ctx, s.DB.Chores, "idempotency_keys", "created_at", []string{"tenant", "key"}, 24*time.Hour)
}

// ForgetReports deletes reports that are older than any run that is kept.
func (s *Store) ForgetReports(ctx context.Context) (forgotten int, left bool, err error) {
	return s.Reports.Forget(ctx, s.Options.FailureRetention)
}

// ForgetService deletes the records of service that explain no run that is kept.
func (s *Store) ForgetService(ctx context.Context) (forgotten int, left bool, err error) {
	return pg.ForgetOld(
		ctx, s.DB.Chores, "service_periods", "until", []string{"queue", "since"}, s.Options.FailureRetention)
}

// ForgetReplicas deletes what is known of replicas that ended before any run that is kept.
func (s *Store) ForgetReplicas(ctx context.Context) (forgotten int, left bool, err error) {
	return pg.ForgetOld(ctx, s.DB.Chores, "replicas_seen", "seen_at", []string{"id"}, s.Options.FailureRetention)
}
