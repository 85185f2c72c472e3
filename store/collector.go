package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
)

// Collector exports the connection pool, the depth of the queues, what is frozen and the partitions ahead to Prometheus.
// The latter three are read from the database at each scrape, within a second, and are absent when that fails.
type Collector struct{ Store *Store }

var (
	poolDesc     = prometheus.NewDesc("punctual_database_connections", "Connections to the database.", []string{"state"}, nil)
	poolMaxDesc  = prometheus.NewDesc("punctual_database_connections_max", "Most connections this replica opens.", nil, nil)
	poolWaitDesc = prometheus.NewDesc("punctual_database_acquire_seconds_total", "Time spent waiting for a connection.", nil, nil)
	depthDesc    = prometheus.NewDesc("punctual_queue_depth", "Slots and runs that are due and wait for a worker slot, counted up to 10,000.", []string{"queue"}, nil)
	frozenDesc   = prometheus.NewDesc("punctual_frozen", "1 while nothing is claimed: with an empty tenant, of the whole deployment, else of that tenant. 0, for the deployment only: it is not frozen.", []string{"tenant"}, nil)
	aheadDesc    = prometheus.NewDesc("punctual_partition_days_ahead", "Days from now on that have partitions: 7 when all is well, 0 when tomorrow's is missing, -1 when today's is.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c Collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- poolDesc
	ch <- poolMaxDesc
	ch <- poolWaitDesc
	ch <- depthDesc
	ch <- aheadDesc
	ch <- frozenDesc
}

// Collect implements prometheus.Collector.
func (c Collector) Collect(ch chan<- prometheus.Metric) {
	stat := c.Store.pool.Stat()
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	gauge(poolDesc, float64(stat.AcquiredConns()), "in_use")
	gauge(poolDesc, float64(stat.IdleConns()), "idle")
	gauge(poolMaxDesc, float64(stat.MaxConns()))
	ch <- prometheus.MustNewConstMetric(poolWaitDesc, prometheus.CounterValue, stat.AcquireDuration().Seconds())

	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if days, err := c.Store.DaysAhead(ctx); err != nil {
		c.Store.options.Log.Warn("the partitions ahead cannot be counted", "error", err)
	} else {
		gauge(aheadDesc, float64(days))
	}
	if freezes, err := c.Store.Freezes(ctx); err != nil {
		c.Store.options.Log.Warn("what is frozen cannot be read", "error", err)
	} else {
		whole := 0.0
		if freezes.Deployment != nil {
			whole = 1
		}
		gauge(frozenDesc, whole, "")
		for _, name := range freezes.Names {
			gauge(frozenDesc, 1, name)
		}
	}
	depths, err := c.Store.depths(ctx)
	if err != nil {
		c.Store.options.Log.Warn("the queues' depth cannot be read", "error", err)
		return
	}
	for queue, depth := range depths {
		gauge(depthDesc, float64(depth), queue)
	}
}

// depths counts, per queue, what is due and waits; at most 10,000 each, so that a scrape stays cheap when
// it matters most.
func (s *Store) depths(ctx context.Context) (map[string]int64, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT q.name,
		       (SELECT count(*) FROM (SELECT FROM punctual.schedules s, generate_series(0, 2) p
		          WHERE s.enabled AND s.lane = (q.id * 4 + p)::smallint AND s.next_run_at <= now() LIMIT 10000) due)
		     + (SELECT count(*) FROM (SELECT FROM punctual.ready r, generate_series(0, 2) p
		          WHERE r.lane = (q.id * 4 + p)::smallint AND r.due_at <= now() LIMIT 10000) ready)
		  FROM punctual.queues q`)
	if err != nil {
		return nil, err
	}
	depths := map[string]int64{}
	var name string
	var depth int64
	_, err = pgx.ForEachRow(rows, []any{&name, &depth}, func() error {
		depths[name] = depth
		return nil
	})
	return depths, err
}
