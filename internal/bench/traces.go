package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
)

// runTraces measures bursts of a replica that exports the traces of one run in a hundred, and of one that exports none,
// in interleaved rounds. The collector only counts.
func runTraces(ctx context.Context, l *lab) {
	var exported atomic.Int64
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		exported.Add(n)
	}))
	defer collector.Close()
	l.vacuums()
	to := l.target(ctx)
	rounds := map[bool][]burst{}
	for round := range l.Rounds {
		for i := range 2 {
			traced := (round+i)%2 == 0
			l.say("round %d of %d: traced: %t", round+1, l.Rounds, traced)
			var env []string
			if traced {
				env = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL}
			}
			replica := l.serveWith(ctx, env, fmt.Sprintf("--queues=default=%d", l.Sizes.Slots), "--trace-ratio=0.01")
			name := fmt.Sprintf("traced-%t-%d", traced, round)
			rounds[traced] = append(rounds[traced], l.burst(ctx, l.Sizes.BurstJobs, oneShot, name, to, replica))
			l.stop(ctx, replica)
		}
	}
	plain, traced := column(rounds[false], throughput), column(rounds[true], throughput)
	l.figure("without traces", "runs/s", nil, plain...)
	l.figure("with traces of 1 %", "runs/s", nil, traced...)
	l.figure("with traces of 1 %, ratio to without", "×", atLeast(0.97), ratios(traced, plain)...)
	l.figure("with traces of 1 %, CPU of the replica, ratio to without", "×", nil,
		ratios(column(rounds[true], replicaTime), column(rounds[false], replicaTime))...)
	l.figure("with traces of 1 %, exported", "bytes/run", nil,
		float64(exported.Load())/float64(l.Rounds*l.Sizes.BurstJobs))
}
