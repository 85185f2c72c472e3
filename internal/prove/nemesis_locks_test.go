package prove

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"punctual/internal/pgtest"
)

// strangersLocks lists the rows that a user locks in psql: rows of the job named $1, or rows that all jobs share.
var strangersLocks = []string{
	`schedules WHERE job_id = (SELECT id FROM punctual.jobs WHERE name = $1)`,
	`jobs WHERE name = $1`,
	`exclusive WHERE job_id = (SELECT id FROM punctual.jobs WHERE name = $1)`,
	`ready WHERE job_id = (SELECT id FROM punctual.jobs WHERE name = $1)`,
	`runs WHERE status IN ('running', 'retrying', 'pending') AND job_id = (SELECT id FROM punctual.jobs WHERE name = $1)`,
	`claims WHERE run_ids && ARRAY(
		SELECT r.id
		FROM punctual.runs r
		JOIN punctual.jobs j ON j.id = r.job_id
		WHERE j.name = $1 AND r.status = 'running')`,
	`tenants WHERE $1 <> ''`,
	`queues WHERE $1 <> ''`,
	`deployment WHERE $1 <> ''`,
}

// lock holds rows locked for some seconds while work runs. The database may be away, or go away meanwhile.
func (b *besieged) lock(rng *rand.Rand, rows, job string, work func(context.Context)) {
	held, cancel := context.WithTimeout(b.t.Context(), time.Second+time.Duration(rng.Int64N(int64(7*time.Second))))
	defer cancel()
	conn, err := pgtest.Connect(held, b.dsn)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close(context.WithoutCancel(held)) }()
	if _, err = conn.Exec(held, `BEGIN`); err == nil {
		_, err = conn.Exec(held, `SELECT FROM punctual.`+rows+` FOR UPDATE`, job)
	}
	if err != nil {
		b.note("a lock that was not to be had")
		return
	}
	work(held)
	<-held.Done()
}

// trespass locks rows of a job for some seconds, as a user in psql does.
func (b *besieged) trespass(rng *rand.Rand, jobs []string) {
	b.lock(rng, strangersLocks[rng.IntN(len(strangersLocks))], jobs[rng.IntN(len(jobs))], func(held context.Context) {
		defer b.fault("rows locked by a stranger")()
		<-held.Done()
	})
}

// crowd lets forty callers of one replica wait for a locked job, and ask again.
func (b *besieged) crowd(rng *rand.Rand, jobs []string) {
	replicas := b.live()
	if len(replicas) == 0 {
		return
	}
	api, name := replicas[rng.IntN(len(replicas))].API, jobs[rng.IntN(len(jobs))]
	b.lock(rng, strangersLocks[0], name, func(held context.Context) {
		defer b.fault("forty slow requests")()
		var calling sync.WaitGroup
		for i := range 40 {
			calling.Go(func() {
				for held.Err() == nil {
					if status, err := api.Do(held, "PATCH", "/v1/jobs/"+name,
						map[string]any{"description": fmt.Sprint("edited by ", i)}, nil); status == 0 && err != nil {
						pass(b.t, 100*time.Millisecond) // the replica is down
					}
				}
			})
		}
		calling.Wait()
	})
}
