package bench

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"punctual/internal/process"
)

// period is the period of the jobs of the benchmark flat.
const period = time.Minute

// flatPath is the path that these jobs call.
const flatPath = "/flat"

// grows lists the figures that must not grow while the load stays the same. Metrics are the replica's.
var grows = []struct{ name, unit, metric, sql string }{
	{name: "goroutines", metric: "go_goroutines"},
	{name: "heap in use", unit: "bytes", metric: "go_memstats_heap_inuse_bytes"},
	{name: "resident", unit: "bytes", metric: "process_resident_memory_bytes"},
	{name: "descriptors", metric: "process_open_fds"},
	{name: "connections to Postgres", metric: "punctual_database_connections"},
	{name: "dead rows, schedules and claims", unit: "rows", sql: `
		SELECT coalesce(sum(n_dead_tup), 0)::float8
		FROM pg_stat_user_tables
		WHERE schemaname = 'punctual' AND relname IN ('schedules', 'claims', 'ready', 'exclusive', 'replicas')`},
	{name: "size of schedules and claims", unit: "bytes", sql: `
		SELECT sum(pg_total_relation_size(('punctual.' || t)::regclass))::float8
		FROM unnest(ARRAY['schedules', 'claims', 'ready', 'exclusive', 'replicas']) t`},
}

// runFlat keeps up a steady load and looks for anything that grows. The jobs have a period of a minute, so that nothing
// changes from minute to minute except the history.
func runFlat(ctx context.Context, l *lab) {
	replica, to := l.serve(ctx), l.target(ctx)
	total := max(l.For, time.Second).Truncate(time.Second)
	first := l.nextSecond(2*time.Second + time.Duration(l.Sizes.FlatRate)*100*time.Millisecond)
	last := first.Add(total - time.Second)
	jobs := flatJobs(l.Sizes.FlatRate, first, last, to.url(flatPath))
	l.say("%d fires/s for %s", l.Sizes.FlatRate, total)
	l.must(process.Create(ctx, replica.API, jobs))
	l.inTime("the jobs were created", first, "the first was due")
	samples := make([][]float64, len(grows))
	for at := first.Add(l.Sizes.FlatEvery); !at.After(last.Add(time.Second)); at = at.Add(l.Sizes.FlatEvery) {
		l.until(ctx, at)
		values := l.look(ctx, replica)
		for i, v := range values {
			samples[i] = append(samples[i], v)
		}
		l.say("after %s: %s", at.Sub(first), spell(values))
	}
	fires := l.Sizes.FlatRate * int(total/time.Second)
	l.done(ctx, first, last, to, flatPath, fires)
	for i, g := range grows {
		quarter := max(len(samples[i])/4, 1)
		l.figure(g.name+", at the end", g.unit, nil, samples[i][len(samples[i])-1])
		l.figure(g.name+", last quarter over first", "×", nil,
			median(samples[i][len(samples[i])-quarter:])/max(median(samples[i][:quarter]), 1))
	}
}

// flatJobs returns jobs that fire rate times a second from first to last, both included.
func flatJobs(rate int, first, last time.Time, url string) (jobs []process.JobSpec) {
	for s := range int(period / time.Second) {
		starts := first.Add(time.Duration(s) * time.Second)
		for i := range rate {
			if !starts.After(last) {
				schedule := map[string]any{
					"every":     period.String(),
					"starts_at": starts.Format(time.RFC3339),
					"ends_at":   last.Format(time.RFC3339),
				}
				jobs = append(jobs, job(fmt.Sprintf("flat-%d-%d", s, i), schedule, url, numbered(i)))
			}
		}
	}
	return jobs
}

// look reads the current value of every entry of grows, in order.
func (l *lab) look(ctx context.Context, replica *process.Replica) (values []float64) {
	metrics, err := readMetrics(ctx, replica.API.URL+"/metrics")
	l.must(err)
	for _, g := range grows {
		value := metrics[g.metric]
		if g.sql != "" {
			value = query[float64](ctx, l, g.sql)
		}
		values = append(values, value)
	}
	return values
}

func spell(values []float64) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = grows[i].name + " " + number(v)
	}
	return strings.Join(texts, ", ")
}

// readMetrics reads the metrics of a replica. Series that differ only in their labels are added up.
func readMetrics(ctx context.Context, url string) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	metrics := map[string]float64{}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		name, _, _ = strings.Cut(name, "{")
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			metrics[name] += v
		}
	}
	return metrics, nil
}
