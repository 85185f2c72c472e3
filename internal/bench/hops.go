package bench

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"punctual/internal/process"
)

// hop is a kind of waiting: what ends it is the end of the run before.
type hop struct {
	name  string
	first string                   // the job whose run begins
	times int                      // how many of its runs are triggered together; 0: one
	jobs  func(url string) []jobOf // they send to url
}

type jobOf = process.JobSpec

// hopsOf lists the kinds, each with n hops one after the other.
func hopsOf(n int) []hop {
	unscheduled := func(name, url string, more jobOf) jobOf {
		spec := jobOf{"name": name, "target": jobOf{"url": url}}
		for k, v := range more {
			spec[k] = v
		}
		return spec
	}
	lone := func(name string, more jobOf) func(string) []jobOf {
		return func(url string) []jobOf { return []jobOf{unscheduled(name, url, more)} }
	}
	return []hop{
		{"a queued run", "queue", n + 1, lone("queue", jobOf{"concurrency_policy": "queue"})},
		{"a run at a limit of one", "limited", n + 1, lone("limited", jobOf{"limits": []string{"one"}})},
		{"a chain", "chain-0", 1, func(url string) (all []jobOf) {
			for i := range n + 1 {
				more := jobOf{}
				if i < n {
					more["then"] = []jobOf{{"job": fmt.Sprint("chain-", i+1)}}
				}
				all = append([]jobOf{unscheduled(fmt.Sprint("chain-", i), url, more)}, all...) // the last one first
			}
			return all
		}},
		{"steps", "steps", 1, func(url string) []jobOf {
			var steps []jobOf
			for i := range n + 1 {
				step := jobOf{"name": fmt.Sprint("s", i), "target": jobOf{"url": url}}
				if i > 0 {
					step["depends_on"] = []string{fmt.Sprint("s", i-1)}
				}
				steps = append(steps, step)
			}
			return []jobOf{{"name": "steps", "steps": steps}}
		}},
	}
}

// runHops measures, on an idle replica, how long it takes from the arrival of a run's request, which is answered at
// once, to that of the run that waits for its end.
func runHops(ctx context.Context, l *lab) {
	replica, to := l.setting(ctx)
	_, err := replica.API.Do(ctx, http.MethodPut, "/v1/limits/one", jobOf{"max_running": 1}, nil)
	l.must(err)
	for _, h := range hopsOf(l.Sizes.Hops) {
		path := "/log/0s/" + h.first
		for _, spec := range h.jobs(to.url(path)) {
			l.must(process.Create(ctx, replica.API, []process.JobSpec{spec}))
		}
		l.atRest(ctx)
		l.say("%d hops of %s", l.Sizes.Hops, h.name)
		for range h.times {
			_, err := replica.API.Do(ctx, http.MethodPost, "/v1/jobs/"+h.first+"/trigger", nil, nil)
			l.must(err)
		}
		all := time.Now() // the target's clock, too
		l.arrived(ctx, to, path, l.Sizes.Hops+1)
		a, err := to.of(ctx, path+"?visits")
		l.must(err)
		var hops []float64
		for i := 1; i < len(a.Visits); i++ {
			if h.times > 1 && i < len(a.Visits)-1 && a.Visits[i].Arrived.Before(all) {
				continue // the replica was busy with triggers
			}
			hops = append(hops, float64(a.Visits[i].Arrived.Sub(a.Visits[i-1].Arrived))/float64(time.Millisecond))
		}
		l.figure(h.name+", half within", "ms", atMost(15), median(hops))
		l.figure(h.name+", 99 % within", "ms", nil, quantile(hops, 0.99))
		l.atRest(ctx)
	}
	l.unfreezes(ctx, replica, to)
}

// unfreezes measures how long it takes from the end of a freeze, asked for at the replica, to the arrival of the
// request of a run that waits for it.
func (l *lab) unfreezes(ctx context.Context, replica *process.Replica, to *target) {
	const path, name = "/log/0s/thaws", "a freeze"
	l.must(process.Create(ctx, replica.API, []process.JobSpec{{"name": "thaws", "target": jobOf{"url": to.url(path)}}}))
	l.say("%d hops of %s", l.Sizes.Hops, name)
	post := func(path string, body any) {
		_, err := replica.API.Do(ctx, http.MethodPost, path, body, nil)
		l.must(err)
	}
	var hops []float64
	for i := range l.Sizes.Hops {
		post("/v1/freeze", jobOf{"scope": "tenant"})
		post("/v1/jobs/thaws/trigger", nil)
		ends := time.Now() // the target's clock, too
		post("/v1/unfreeze", jobOf{"scope": "tenant"})
		l.arrived(ctx, to, path, i+1)
		a, err := to.of(ctx, path+"?visits")
		l.must(err)
		hops = append(hops, float64(a.Visits[i].Arrived.Sub(ends))/float64(time.Millisecond))
	}
	l.figure(name+", half within", "ms", atMost(15), median(hops))
	l.figure(name+", 99 % within", "ms", nil, quantile(hops, 0.99))
	l.atRest(ctx)
}
