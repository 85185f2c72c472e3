package history

import (
	"container/heap"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// limitedRuns are the runs of each limit l: those of jobs that name it. A workflow's own run takes no limit, and its
// steps take theirs or else the job's. $1 is the tenant, $4 the first id.
const limitedRuns = `
	FROM punctual.limits l
	JOIN punctual.tenants t ON t.id = l.tenant
	JOIN punctual.jobs j ON j.tenant = l.tenant
	JOIN punctual.job_versions v ON v.job_id = j.id
	    AND ((v.definition -> 'limits')::jsonb ? l.name OR v.definition -> 'steps' IS NOT NULL)
	JOIN punctual.runs r ON r.job_id = v.job_id AND r.job_version = v.version AND r.id >= $4
	WHERE CASE WHEN v.definition -> 'steps' IS NULL THEN true
	           WHEN r.step IS NOT NULL
	           THEN coalesce((SELECT s -> 'limits' FROM json_array_elements(v.definition -> 'steps') s
	                          WHERE s ->> 'name' = r.step), v.definition -> 'limits', '[]')::jsonb ? l.name END
	  AND ($1 = 0 OR l.tenant = $1)`

// verifyHolders reads the runs that held each limit, in the order of their claims. They held it from their latest
// attempt to their end at least. Those from before the limit was last changed are left out.
const verifyHolders = `
	SELECT t.name, l.name, l.max_running, r.id, r.claimed_at, r.started_at, r.finished_at` + limitedRuns + `
	  AND l.max_running IS NOT NULL AND r.claimed_at BETWEEN greatest(l.updated_at + $5::interval, $2) AND $3
	  AND r.started_at IS NOT NULL
	ORDER BY l.tenant, l.name, r.claimed_at, r.id`

// holders looks for limits that more runs held at once than they allow.
func (v *verification) holders(ctx context.Context, tx pgx.Tx) error {
	if v.options.Job != "" {
		return nil
	}
	rows := pg.Query(ctx, tx, verifyHolders, v.tenant, v.summary.From, v.summary.To, v.firstID(), v.options.Grace)
	var tenant, name string
	var most int
	var run uuid.UUID
	var claimed, started time.Time
	var finished *time.Time
	var l *heldLimit
	_, err := pgx.ForEachRow(rows, []any{&tenant, &name, &most, &run, &claimed, &started, &finished}, func() error {
		if l == nil || l.tenant != tenant || l.name != name {
			l = &heldLimit{tenant: tenant, name: name, most: most}
		}
		if found := l.add(run, claimed, started, finished); found != nil {
			v.report(*found)
		}
		return v.failed
	})
	return pg.Wrap("reading the holders of limits", err)
}

// heldLimit is a limit with the ends of the runs that hold it: never more than it allows, and one.
type heldLimit struct {
	tenant, name string
	most         int
	ends         ends
	told         bool
}

// ends are instants, the earliest first.
type ends []time.Time

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].Before(e[j]) }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)        { *e = append(*e, x.(time.Time)) } //nolint:forcetypeassert // it is no other
func (e *ends) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

// never is later than the end of any run.
var never = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// add adds the next run. It returns the first one that is too many.
func (l *heldLimit) add(run uuid.UUID, claimed, started time.Time, finished *time.Time) *Violation {
	for len(l.ends) > 0 && !l.ends[0].After(claimed.Add(apart)) {
		heap.Pop(&l.ends)
	}
	end := never
	if finished != nil {
		end = *finished
	}
	heap.Push(&l.ends, end)
	if len(l.ends) <= l.most {
		return nil
	}
	heap.Pop(&l.ends)
	if l.told {
		return nil
	}
	l.told = true
	return &Violation{
		Kind: ViolationLimit, Tenant: l.tenant, Slot: &started, Runs: []uuid.UUID{run},
		Detail: fmt.Sprintf("limit %q allows %d runs at once, and as many were open when this one began", l.name, l.most),
	}
}
