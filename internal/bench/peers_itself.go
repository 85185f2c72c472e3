package bench

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"punctual/httpapi/client"
	"punctual/internal/process"
)

// itself is Punctual as a contender.
type itself struct {
	*lab
	replicas []*process.Replica
}

func (*itself) String() string { return "Punctual" }

func (s *itself) prepare(ctx context.Context, _ load) { s.must(s.db.fresh(ctx)) }

// start starts the replicas first, because they create the jobs through their API. So all jobs are due at a time.
func (s *itself) start(ctx context.Context, of load) (workers []*process.Process, due time.Time) {
	for range of.workers {
		s.replicas = append(s.replicas, s.serveSlots(ctx, cmp.Or(of.slots, s.Sizes.Slots)))
	}
	var crons []process.JobSpec
	for i := range of.crons {
		crons = append(crons, invoices(fmt.Sprint("cron-", i), map[string]any{"cron": "* * * * *"}, of.url))
	}
	s.must(process.Create(ctx, s.replicas[0].API, crons))
	if of.jobs > 0 {
		due, _ = s.herd(ctx, s.replicas[0], of.jobs, func(due time.Time, try, i int) process.JobSpec {
			if try > 0 && i == 0 { // the requests of the try before do not count
				_, err := client.New(of.url).Do(ctx, http.MethodDelete, "", nil, nil)
				s.must(err)
			}
			return invoices(fmt.Sprintf("job-%d-%d", try, i), oneShot(due.Add(time.Duration(i)*of.every)), of.url)
		})
	}
	s.settle(ctx)
	return processes(s.replicas), due
}

// ready does nothing: a replica is ready when it has started.
func (*itself) ready(context.Context, []*process.Process) {}

func (s *itself) finished(ctx context.Context) (bool, error) {
	return tryQuery[bool](ctx, s.lab, `
		SELECT NOT EXISTS (SELECT FROM punctual.claims)
		    AND NOT EXISTS (SELECT FROM punctual.schedules WHERE enabled AND next_run_at <= now())`)
}

// clear ends the replicas. Their tables go when they start again, or with the bench.
func (s *itself) clear(context.Context) error {
	for _, r := range s.replicas {
		r.Kill()
	}
	s.replicas = nil
	return nil
}
