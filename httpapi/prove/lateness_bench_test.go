package prove

import (
	"testing"
	"time"

	"punctual/store/privatepg"
	"punctual/store/storetest"
)

// BenchmarkLateness measures the time from due to the request's arrival at the witness, with three
// replicas and 200 fires a second without jitter for 20 s: spread evenly, and as 200 cron jobs that are all
// due on the second.
func BenchmarkLateness(b *testing.B) {
	const rate, seconds = 200, 20
	for _, load := range []struct {
		name string
		herd herd
	}{
		{"spread", herd{oneShots: rate * seconds, within: seconds * time.Second}},
		{"on-the-second", herd{cronJobs: rate, seconds: seconds}},
	} {
		b.Run(load.name, func(b *testing.B) {
			dsn := storetest.Database(b, storetest.NewServer(b, privatepg.Config{}))
			w := newWitness(b)
			fleet := []*Replica{serve(b, dsn), serve(b, dsn), serve(b, dsn)}
			for b.Loop() {
				h := load.herd
				h.start = nextSecond(3 * time.Second)
				create(b, fleet[0].API, h.jobs(w.URL)...)
				h.awaitAll(b, w, 0)
				f := atRest(b, dsn, w)
				verify(b, f, Conditions{SentOnce: true, AllSucceed: true})
				late := lateness(f)
				ms := func(q float64) float64 { return float64(quantile(late, q).Microseconds()) / 1000 }
				record(b, map[string]float64{"p50-ms": ms(0.5), "p90-ms": ms(0.9), "p99-ms": ms(0.99), "max-ms": ms(1), "runs": float64(len(late))})
			}
			for _, r := range fleet {
				stop(b, r)
			}
		})
	}
}
