package bench

import (
	"context"
	"time"
)

// herdFor is how long recurring jobs are given to arrive: until they are due again.
const herdFor = time.Minute

// herds measures when the last of many recurring jobs arrives that are due at one whole minute.
func (p *peers) herds(ctx context.Context, round int) {
	p.say("round %d of %d: %d crons of one second", round+1, p.Rounds, p.Sizes.PeerCrons)
	p.each(ctx, round, "crons", p.best(), func(c contender) {
		last, n := p.herdOf(ctx, round, c)
		p.note("herd, last arrival", c, last.Seconds())
		p.note("herd, arrived in the minute", c, float64(n))
	})
}

// herdOf makes the jobs in the first half of a minute, so that their first time to be due is the next minute.
func (p *peers) herdOf(ctx context.Context, round int, c contender) (last time.Duration, n int) {
	if now := p.now(); now.Second() > 30 {
		p.until(ctx, now.Truncate(time.Minute).Add(time.Minute+time.Second))
	}
	path := route("/log/0s/herd-", round, c)
	workers, _ := p.begin(ctx, c, load{url: p.to.url(path), crons: p.Sizes.PeerCrons, workers: 1})
	c.ready(ctx, workers)
	due := p.now().Add(3 * time.Second).Truncate(time.Minute).Add(time.Minute)
	p.until(ctx, due)
	p.must(await(ctx, "the crons", 50*time.Millisecond, func() (bool, error) {
		a, err := p.to.of(ctx, path)
		if err != nil {
			return false, err
		}
		late := p.now().Sub(due) > herdFor
		if a.Count < p.Sizes.PeerCrons && !late {
			return false, alive("a worker", workers[0])
		}
		a, err = p.to.of(ctx, path+"?visits")
		last, n = herded(a.Visits, due.Add(-p.offset), p.Sizes.PeerCrons)
		return n >= p.Sizes.PeerCrons || late, err
	}))
	return last, n
}

// herded returns how many jobs arrived in the minute after they were due, and when the last of them did. If they were
// not all, it is the whole minute.
func herded(visits []visit, due time.Time, jobs int) (last time.Duration, n int) {
	seen := map[string]bool{}
	for _, v := range visits {
		after := v.Arrived.Sub(due)
		if after < 0 || after >= herdFor || seen[v.Job] {
			continue
		}
		seen[v.Job] = true
		last = max(last, after)
	}
	if len(seen) < jobs {
		last = herdFor
	}
	return last, len(seen)
}
