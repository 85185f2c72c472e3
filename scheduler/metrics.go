package scheduler

import (
	"sync/atomic"
	"time"

	"punctual/scheduler/admit"

	"github.com/prometheus/client_golang/prometheus"

	"punctual/scheduler/delivery"
	"punctual/scheduler/domain"
	"punctual/scheduler/notice"
)

// Metrics are what a replica reports to Prometheus about its own work. Durations are in seconds.
type Metrics struct {
	lateness   prometheus.Histogram
	runs       *prometheus.CounterVec
	attempts   *prometheus.CounterVec
	retries    prometheus.Counter
	dropped    prometheus.Counter
	duration   prometheus.Histogram
	superseded prometheus.Counter
	deferred   prometheus.Counter
	short      *prometheus.CounterVec
	recovered  prometheus.Counter
	chores     prometheus.Counter
	notices    *prometheus.CounterVec
	tick       prometheus.Histogram
	looked     atomic.Int64 // when the tick loop last looked for due work, in Unix nanoseconds; 0: never
	finish     prometheus.Histogram
	punctual   punctuality
	onTime     time.Duration
	registry   prometheus.Registerer
}

// NewMetrics creates and registers the metrics of a replica. OnTime is how long after it was due a run's first request
// may be sent to be on time.
func NewMetrics(registry prometheus.Registerer, onTime time.Duration) *Metrics {
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		registry.MustRegister(v)
		return v
	}
	counter := func(name, help string) prometheus.Counter { return counters(name, help).WithLabelValues() }
	histogram := func(name, help string, buckets ...float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
		registry.MustRegister(h)
		return h
	}
	m := &Metrics{
		onTime: onTime, punctual: punctuality{tenants: map[int32]Punctual{}}, registry: registry,
		lateness: histogram("punctual_lateness_seconds", "From when a slot was due to when its first request was sent.",
			.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 3600),
		runs:     counters("punctual_runs_total", "Runs that reached a final status on this replica.", "status", "reason"),
		attempts: counters("punctual_attempts_total", "Attempts that ended on this replica.", "outcome"),
		retries:  counter("punctual_retries_total", "Attempts that failed and are made again."),
		dropped: counter("punctual_dropped_runs_total", "Runs that an event, a chain or a caller had asked for, and that "+
			"this replica skipped because others of the job were active or too many waited."),
		duration: histogram("punctual_attempt_duration_seconds",
			"From when a request was sent to its answer. Of a target that answered 202, not how long it worked.",
			.005, .025, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600),
		superseded: counter("punctual_superseded_attempts_total",
			"Attempts whose outcome changed nothing because a later attempt holds the run."),
		deferred: counter("punctual_deferred_attempts_total",
			"Times a run was parked unsent because its host cannot be reached or hangs."),
		short: counters("punctual_replica_shortages_total",
			"Times a run went back unsent because this replica lacks something, such as file descriptors.", "lacks"),
		recovered: counter("punctual_recovered_runs_total", "Runs that this replica took over from lost ones."),
		chores: counter("punctual_maintenance_failures_total",
			"Times that a minute's chores failed on this replica, such as creating partitions and removing old rows."),
		notices: counters("punctual_notices_total",
			"Messages sent to recipients of notices, by result: delivered, put_off, unsent, refused, unknown.", "result"),
		tick: histogram("punctual_tick_duration_seconds", "Duration of a tick: looking, claiming, dispatching.",
			prometheus.ExponentialBuckets(.0005, 2, 14)...),
		finish: histogram("punctual_finish_duration_seconds", "Duration of writing a batch of outcomes.",
			prometheus.ExponentialBuckets(.0005, 2, 14)...),
	}
	// A counter whose series begins with its first event has not increased by it, for Prometheus, so no alarm would fire.
	for _, reason := range domain.ReasonsOf(domain.StatusDead) {
		m.runs.WithLabelValues(string(domain.StatusDead), string(reason))
	}
	for _, result := range []notice.Arrival{
		notice.Delivered, notice.PutOff, notice.Unsent, notice.Refused, notice.Unknown,
	} {
		m.notices.WithLabelValues(string(result))
	}
	for _, lacks := range delivery.Lacking() {
		m.short.WithLabelValues(lacks)
	}
	return m
}

// LookedAt returns when this replica last looked for due work; the zero time: not yet.
func (m *Metrics) LookedAt() time.Time {
	if at := m.looked.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// watch exports the occupied worker slots, the held-back tenants, the state of the circuit breakers, when the replica
// last looked for due work and how its clock differs from the database's.
func (m *Metrics) watch(a *admit.Admission, clock *dbClock) {
	gauge := func(name, help string, value func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	if len(a.Slots.Numbers()) > 0 { // else it never looks
		gauge("punctual_last_look_timestamp_seconds",
			"When this replica last asked the database for due work, in seconds since 1970; 0: not yet.",
			func() float64 { return float64(m.looked.Load()) / 1e9 })
		gauge("punctual_clock_offset_seconds",
			"How far the database's clock is ahead of this replica's. Only the database's decides.",
			func() float64 { return clock.offset().Seconds() })
	}
	m.registry.MustRegister(collector{a.Slots, a.Limits})
	gauge("punctual_breakers_open", "Hosts, by tenant, whose circuit breaker is not closed on this replica.",
		func() float64 { return float64(len(a.Holds.Breakers.All())) })
	gauge("punctual_hanging_places",
		"Hosts and paths, by tenant, whose requests time out: they may use a quarter of a queue's concurrency.",
		func() float64 { return float64(len(a.Holds.Hangs.All())) })
}

// late records how late a run's first request is. A backfilled slot does not count: it was due before somebody asked
// for it.
func (m *Metrics) late(a domain.Assignment, started time.Time) {
	if a.Attempt == 1 && a.Trigger != domain.TriggerBackfill {
		m.lateness.Observe(started.Sub(a.DueAt).Seconds())
		m.punctual.count(a.Job.Tenant, started.Sub(a.DueAt) <= m.onTime)
	}
}

func (m *Metrics) finished(outcomes []domain.Outcome, superseded int, d time.Duration) {
	m.finish.Observe(d.Seconds())
	m.superseded.Add(float64(superseded))
	m.Ended(outcomes)
}

// Ended counts attempts that have ended, and runs that have ended. To look up a counter costs more than to count, so
// outcomes are counted first.
func (m *Metrics) Ended(outcomes []domain.Outcome) {
	type ending struct {
		status domain.Status
		reason domain.Reason
	}
	runs, attempts, retries := map[ending]int{}, map[domain.AttemptOutcome]int{}, 0
	for i := range outcomes {
		o := &outcomes[i]
		end := o.End()
		attempts[end.Attempt]++
		if end.Status == domain.StatusRetrying {
			retries++
		}
		if !o.StartedAt.IsZero() {
			m.duration.Observe(o.FinishedAt.Sub(o.StartedAt).Seconds())
		}
		if end.Status.Final() {
			runs[ending{end.Status, o.Reason}]++
		}
	}
	m.retries.Add(float64(retries))
	for outcome, n := range attempts {
		if outcome != "" { // nothing was sent
			m.attempts.WithLabelValues(string(outcome)).Add(float64(n))
		}
	}
	for e, n := range runs {
		m.runs.WithLabelValues(string(e.status), string(e.reason)).Add(float64(n))
	}
}

// collector exports worker slots and runs in flight by queue, and the tenants that this replica holds back. Other
// tenants have no series.
type collector struct {
	slots  *admit.Slots
	limits *admit.Limits
}

var (
	slotsDesc    = prometheus.NewDesc("punctual_worker_slots", "Concurrency of this replica.", []string{"queue"}, nil)
	inFlightDesc = prometheus.NewDesc("punctual_in_flight", "Requests in flight on this replica.", []string{"queue"}, nil)
	heldBackDesc = prometheus.NewDesc("punctual_held_back",
		"1 for each tenant whose due work waits on this replica for a limit of the tenant.", []string{"tenant", "limit"}, nil)
)

func (c collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- slotsDesc
	ch <- inFlightDesc
	ch <- heldBackDesc
}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	c.slots.Each(func(name string, size, inFlight int) {
		ch <- prometheus.MustNewConstMetric(slotsDesc, prometheus.GaugeValue, float64(size), name)
		ch <- prometheus.MustNewConstMetric(inFlightDesc, prometheus.GaugeValue, float64(inFlight), name)
	})
	c.limits.Each(func(name string, by admit.Limit) {
		ch <- prometheus.MustNewConstMetric(heldBackDesc, prometheus.GaugeValue, 1, name, string(by))
	})
}
