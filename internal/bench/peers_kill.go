package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"punctual/internal/process"
)

// kills measures how long jobs are lost whose worker was killed: of two workers one is killed while both are busy with
// jobs that take a second. All contenders do this at the same time, because the jobs only wait.
func (p *peers) kills(ctx context.Context, round int) {
	p.say("round %d of %d: of two workers one is killed", round+1, p.Rounds)
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	order := turns(round, p.all()...)
	path := func(c contender) string { return route("/log/1s/kill-", round, c) }
	of := func(c contender) load {
		return load{url: p.to.url(path(c)), jobs: p.Sizes.PeerKilled, workers: 2, slots: p.Sizes.PeerSlots}
	}
	for _, c := range order { // all before any works: graphile-worker ends its workers when tables like theirs are made
		p.doing = "jobs of " + c.String()
		defer func() { p.failed(c.clear(ctx)) }()
		c.prepare(ctx, of(c))
	}
	recoveries := make([]recovery, len(order))
	for i, c := range order {
		p.doing = "jobs of " + c.String()
		workers, _ := c.start(ctx, of(c))
		watching.Go(func() {
			found, err := p.recoveryOf(ctx, workers, path(c))
			if err != nil {
				cancel(fmt.Errorf("jobs of %s while a worker is killed: %w", c, err))
			}
			recoveries[i] = found
		})
	}
	p.doing = ""
	watching.Wait()
	p.must(context.Cause(ctx))
	for i, c := range order {
		p.note("kill, last lost job tried again", c, recoveries[i].again.Seconds())
		p.note("kill, lost jobs", c, float64(recoveries[i].lost))
		p.note("kill, not answered by then", c, float64(recoveries[i].unanswered))
		p.note("kill, answered twice", c, float64(recoveries[i].twice))
	}
}

// recoveryOf kills the first of two workers some seconds after the first request, and waits until every job was
// answered, or for as long as the sizes say.
func (p *peers) recoveryOf(ctx context.Context, workers []*process.Process, path string) (found recovery, err error) {
	if err := p.came(ctx, workers, path, 1, 10*time.Millisecond); err != nil {
		return found, err
	}
	a, err := p.to.of(ctx, path)
	if err != nil {
		return found, err
	}
	select {
	case <-time.After(time.Until(a.First.Add(p.Sizes.PeerKillAfter))):
	case <-ctx.Done():
		return found, ctx.Err()
	}
	killed := time.Now()
	workers[0].Kill()
	given := killed.Add(p.Sizes.PeerKillFor)
	err = await(ctx, "the lost jobs", 500*time.Millisecond, func() (bool, error) {
		a, err := p.to.of(ctx, path+"?visits")
		found = recovered(a.Visits, p.Sizes.PeerKilled, killed, given)
		return found.unanswered == 0 || time.Now().After(given), errors.Join(err, alive("a worker", workers[1]))
	})
	return found, err
}

// recovery is what became of jobs whose worker was killed.
type recovery struct {
	lost       int           // requests whose client has gone
	again      time.Duration // from the kill until the last of their jobs arrived again
	unanswered int           // jobs that have had no answer yet
	twice      int           // jobs that had more than one answer
}

// recovered reads visits of the jobs that a worker had when it was killed, and of all others. A lost job that has not
// arrived again counts as if it did at the end of the given time, and so does one that was lost unseen: a worker may
// have taken it without sending its request.
func recovered(visits []visit, jobs int, killed, given time.Time) (found recovery) {
	answers := map[string]int{}
	lost := map[string]bool{}
	earlier := func(a, b visit) int { return a.Arrived.Compare(b.Arrived) }
	for _, v := range slices.SortedFunc(slices.Values(visits), earlier) {
		if lost[v.Job] {
			found.again = max(found.again, v.Arrived.Sub(killed))
		}
		lost[v.Job] = v.Ended && !v.Answered
		if lost[v.Job] {
			found.lost++
		}
		if v.Answered {
			answers[v.Job]++
		}
	}
	found.unanswered = jobs - len(answers)
	if found.unanswered > 0 {
		found.again = given.Sub(killed)
	}
	for _, n := range answers {
		if n > 1 {
			found.twice++
		}
	}
	return found
}
