package store

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"punctual/scheduler"
	"punctual/store/aside"
	"punctual/store/fleet"
	"punctual/store/history"
)

// Collector exports the connection pools, the depths of the queues, the freezes, the next expiries of keys, the
// events on their way, the jobs whose slots are skipped or that run twice at once, the partitions ahead and the days
// to archive to Prometheus. All but the pools are read from the database at each scrape, within a second, and are
// absent when that fails.
type Collector struct {
	Store       *Store
	Punctuality func() map[int32]scheduler.Punctual // of this replica
}

// descs are what a Collector exports.
var descs []*prometheus.Desc

// newDesc adds a description to those of a Collector.
func newDesc(name, help string, labels ...string) *prometheus.Desc {
	desc := prometheus.NewDesc(name, help, labels, nil)
	descs = append(descs, desc)
	return desc
}

var (
	poolDesc = newDesc("punctual_database_connections",
		"Connections to the database, by what they are for and their state.",
		"for", "state")
	poolMaxDesc = newDesc("punctual_database_connections_max",
		"Most connections this replica opens, by what they are for.",
		"for")
	poolWaitDesc = newDesc("punctual_database_acquire_seconds_total",
		"Time spent waiting for a connection, by what it was for.",
		"for")
	depthDesc = newDesc("punctual_queue_depth",
		"Slots and runs that are due and wait for concurrency, counted up to 10,000.",
		"queue")
	frozenDesc = newDesc("punctual_frozen",
		"1: the tenant is frozen, or with an empty tenant the deployment; 0, for the deployment only: it is not frozen.",
		"tenant")
	oldestDesc = newDesc("punctual_oldest_due_seconds",
		"How long the oldest work has waited for nothing but a replica to take it, its host, a limit of its tenant, the "+
			"gate of its job, or a replica that serves the queue; 0: there is none. Work of frozen tenants does not count.",
		"queue", "waiting_for")
	overdueDesc = newDesc("punctual_overdue_runs",
		"Slots and runs that have waited for nothing but a replica to take them for more than 10 s: of each lane, of the "+
			"oldest 1,000. Work of frozen tenants does not count.",
		"queue")
	snapshotDesc = newDesc("punctual_oldest_snapshot_seconds",
		"How long the oldest transaction, prepared transaction or replication slot has kept Postgres from removing old rows "+
			"of this database; 0: there is none. If the role may not see when it began, since this replica first saw it.")
	servedDesc = newDesc("punctual_queue_served",
		"1: a live replica serves the queue; 0: none does.",
		"queue")
	heldDesc = newDesc("punctual_held_runs",
		"Runs that wait for a host that cannot be reached or hangs, counted up to 10,000.",
		"queue")
	holdDesc = newDesc("punctual_held_by",
		"Runs that wait for each host or path, counted up to 10,000; the hundred with the most.",
		"tenant", "held_by", "state")
	aheadDesc = newDesc("punctual_partition_days_ahead",
		"Days from now on that have partitions: 7 when all is well, 0 when tomorrow's is missing, -1 when today's is.")
	archiveWaitDesc = newDesc("punctual_archive_waiting_seconds",
		"How long the oldest day of runs that is past its retention has waited to be archived; 0: none waits. Absent unless "+
			"days are archived.")
	archiveFailuresDesc = newDesc("punctual_archive_failures",
		"How often in a row the archive command has failed for one day; the most of the days that wait. Absent unless days "+
			"are archived.")
	keyExpiryDesc = newDesc("punctual_next_key_expiry_timestamp_seconds",
		"When the next API key of the tenant expires. Of the 1,000 keys that expire next, without keys made for a week or less.",
		"tenant")
	overlapDesc = newDesc("punctual_overlapping_jobs",
		"Jobs most of whose slots are skipped, because the run before has not ended; only jobs with recipients for that. "+
			"Counted up to 10,000; the hundred tenants with the most.",
		"tenant")
	togetherDesc = newDesc("punctual_gated_jobs_with_two_runs",
		"Jobs whose runs must not overlap, because their concurrency_policy is not allow, with two runs at once all the same. "+
			"Runs that were in flight when the policy was set do not count. Of runs that targets work on, 10,000 are looked at.")
	openLettersDesc = newDesc("punctual_open_dead_letters",
		"Dead letters that are open, counted up to 10,000 over all tenants; the hundred tenants with the most.",
		"tenant")
	onTimeDesc = newDesc("punctual_on_time_total",
		"Runs whose first request was sent on time here, and those whose was not, by tenant: of the first hundred that had "+
			"one. The runs of all others are in the series with an empty tenant.",
		"tenant", "ok")
	approvalsDesc = newDesc("punctual_approvals_waiting",
		"Steps of workflows that wait for a person's approval, counted up to 10,000.")
	workflowsDesc = newDesc("punctual_workflows_running",
		"Workflows that have begun and not ended, counted up to 10,000.")
	eventsDesc = newDesc("punctual_events_total",
		"Events that have come to all their subscribers. This replica made the last of their runs.")
	pendingEventsDesc = newDesc("punctual_events_pending",
		"Events that have not come to all their subscribers, counted up to 10,000.")
	oldestEventDesc = newDesc("punctual_oldest_event_seconds",
		"How long ago the oldest event was emitted that has not come to all its subscribers; 0: there is none.")
	standbyUsableDesc = newDesc("punctual_read_database_usable",
		"1: the standby of --read-database-url is asked; 0: it cannot be used, and is left alone for a while.")
	standbyLagDesc = newDesc("punctual_read_database_lag_seconds",
		"How far the standby was behind the database when this replica last asked it.")
	standbyReadsDesc = newDesc("punctual_read_database_reads_total",
		"Reads that the standby may answer, by who did: standby, or else the primary, because the standby was behind the "+
			"reader's position (behind) or too old (stale), did not know what was asked for or not as final (unknown), or "+
			"because the read failed there (failed) or the standby could not be used (unusable).",
		"answer")
	asideDesc = newDesc("punctual_set_aside",
		"Items that fail by themselves and were set aside, so that they keep nothing else waiting; by their kind.",
		"kind")
	takenBackDesc = newDesc("punctual_lost_outcomes_total",
		"Runs that had not ended and that no replica had, because the database had lost what it had acknowledged. "+
			"This replica took them back.")
)

// Describe implements prometheus.Collector.
func (c Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range descs {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (c Collector) Collect(ch chan<- prometheus.Metric) {
	c.Store.DB.Stats(func(part string, stat *pgxpool.Stat) {
		gauge(ch, poolDesc, float64(stat.AcquiredConns()), part, "in_use")
		gauge(ch, poolDesc, float64(stat.IdleConns()), part, "idle")
		gauge(ch, poolMaxDesc, float64(stat.MaxConns()), part)
		ch <- prometheus.MustNewConstMetric(poolWaitDesc, prometheus.CounterValue, stat.AcquireDuration().Seconds(), part)
	})
	ch <- prometheus.MustNewConstMetric(takenBackDesc, prometheus.CounterValue,
		float64(c.Store.Claims.TakenBack()+c.Store.Workflows.StoodStill()))
	ch <- prometheus.MustNewConstMetric(eventsDesc, prometheus.CounterValue, float64(c.Store.Events.Ended()))
	if standby := c.Store.DB.StandbyState(); standby != nil {
		gauge(ch, standbyUsableDesc, oneIf(standby.Usable))
		gauge(ch, standbyLagDesc, standby.Lag.Seconds())
		for answer, n := range standby.Answers {
			ch <- prometheus.MustNewConstMetric(standbyReadsDesc, prometheus.CounterValue, float64(n), answer)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if ahead, err := c.Store.Days.Ahead(ctx); c.read(err, "the partitions of coming days cannot be counted") {
		gauge(ch, aheadDesc, float64(ahead))
	}
	if age, err := c.Store.OldestSnapshot(ctx); c.read(err, "what keeps old rows cannot be read") {
		gauge(ch, snapshotDesc, age.Seconds())
	}
	waiting, err := c.Store.Archives.Waiting(ctx)
	if c.read(err, "the days that wait to be archived cannot be read") && waiting.On {
		gauge(ch, archiveWaitDesc, waiting.For.Seconds())
		gauge(ch, archiveFailuresDesc, float64(waiting.Failures))
	}
	if freezes, err := c.Store.Freezes.Freezes(ctx); c.read(err, "the freezes cannot be read") {
		gauge(ch, frozenDesc, oneIf(freezes.Deployment != nil), "")
		for _, name := range freezes.Names {
			gauge(ch, frozenDesc, 1, name)
		}
	}
	expiries, err := c.Store.Tenants.NextKeyExpiries(ctx)
	c.read(err, "the next expiries of API keys cannot be read")
	for _, next := range expiries {
		gauge(ch, keyExpiryDesc, float64(next.At.UnixMicro())/1e6, next.Tenant)
	}
	if n, waiting, err := c.Store.Workflows.Count(ctx); c.read(err, "the workflows cannot be counted") {
		gauge(ch, workflowsDesc, float64(n))
		gauge(ch, approvalsDesc, float64(waiting))
	}
	counted, err := c.Store.Aside.Counts(ctx)
	if c.read(err, "what is set aside cannot be counted") {
		for _, kind := range aside.Kinds() {
			gauge(ch, asideDesc, float64(counted[kind]), string(kind))
		}
	}
	if pending, err := c.Store.Events.CountPending(ctx); c.read(err, "the pending events cannot be counted") {
		gauge(ch, pendingEventsDesc, float64(pending.Events))
		gauge(ch, oldestEventDesc, pending.Oldest.Seconds())
	}
	counts, err := c.Store.Notices.CountOverlapping(ctx)
	c.read(err, "the jobs whose slots are skipped cannot be counted")
	for _, n := range counts {
		gauge(ch, overlapDesc, float64(n.Jobs), n.Tenant)
	}
	twice, err := history.New(c.Store.DB.Chores, 0).CountTogether(ctx)
	if c.read(err, "the jobs with two runs at once cannot be counted") {
		gauge(ch, togetherDesc, float64(twice))
	}
	c.read(c.collectPunctuality(ctx, ch), "the tenants' names cannot be read")
	open, err := c.Store.Letters.CountOpen(ctx)
	c.read(err, "the open dead letters cannot be counted")
	for _, n := range open {
		gauge(ch, openLettersDesc, float64(n.Open), n.Tenant)
	}
	c.read(c.collectQueues(ctx, ch), "the queues' depths cannot be read")
}

// read reports whether a read has succeeded. Otherwise it logs what is missing.
func (c Collector) read(err error, missing string) bool {
	if err != nil {
		c.Store.Options.Log.Warn(missing, "error", err)
	}
	return err == nil
}

func (c Collector) collectPunctuality(ctx context.Context, ch chan<- prometheus.Metric) error {
	counts := c.Punctuality()
	names, err := c.Store.Tenants.Names(ctx, slices.Collect(maps.Keys(counts)))
	if err != nil {
		return err
	}
	named := map[string]scheduler.Punctual{}
	for id, n := range counts {
		sum := named[names[id]] // empty: it is none of those that are counted by themselves
		named[names[id]] = scheduler.Punctual{OnTime: sum.OnTime + n.OnTime, Late: sum.Late + n.Late}
	}
	for name, n := range named {
		ch <- prometheus.MustNewConstMetric(onTimeDesc, prometheus.CounterValue, float64(n.OnTime), name, "true")
		ch <- prometheus.MustNewConstMetric(onTimeDesc, prometheus.CounterValue, float64(n.Late), name, "false")
	}
	return nil
}

// mostHoldsShown bounds the series of punctual_held_by.
const mostHoldsShown = 100

func (c Collector) collectQueues(ctx context.Context, ch chan<- prometheus.Metric) error {
	of := fleet.New(c.Store.DB.Chores) // a scrape waits for no caller
	queues, _, err := of.QueueDepths(ctx, 0)
	if err != nil {
		return err
	}
	waits, err := of.Waits(ctx)
	if err != nil {
		return err
	}
	for _, w := range waits {
		gauge(ch, oldestDesc, w.Oldest.Seconds(), w.Queue, w.For)
	}
	overdue, err := of.Overdue(ctx)
	if err != nil {
		return err
	}
	for _, o := range overdue {
		gauge(ch, overdueDesc, float64(o.Count), o.Queue)
	}
	for _, q := range queues {
		gauge(ch, depthDesc, float64(q.DueSlots+q.DueRuns), q.Name)
		gauge(ch, servedDesc, oneIf(q.WaitsFor == nil), q.Name)
		gauge(ch, heldDesc, float64(q.HeldRuns), q.Name)
	}
	holds, err := of.Holds(ctx, 0)
	if err != nil {
		return err
	}
	slices.SortStableFunc(holds, func(a, b fleet.Breaker) int { return b.WaitingRuns - a.WaitingRuns })
	for _, h := range holds[:min(len(holds), mostHoldsShown)] {
		gauge(ch, holdDesc, float64(h.WaitingRuns), h.Tenant, h.HeldBy, h.State)
	}
	return nil
}

func gauge(ch chan<- prometheus.Metric, desc *prometheus.Desc, value float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}

// oneIf returns the value of a gauge that says whether something is so.
func oneIf(so bool) float64 {
	if so {
		return 1
	}
	return 0
}
