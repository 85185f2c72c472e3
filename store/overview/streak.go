package overview

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/days"
	"punctual/store/pg"
)

// How far a look at failing jobs reads. A job that has failed every second for a month must not make each look read
// that month, so the next look continues where this one ended.
const (
	firstRuns  = 500    // of a job of which nothing is known, the newest first
	freshRuns  = 10_000 // of a job, after those that were read earlier
	olderRuns  = 50_000 // of all jobs together, before those that were read earlier
	settledFor = time.Minute
)

// streak is what is known of a job since its newest success: of the runs from low to top, which have ended and among
// which no further ones are expected. No success is among them.
type streak struct {
	low, top uuid.UUID
	whole    bool // a success is right before low, or nothing
	failures int
	since    time.Time // slot of the first of the failures
}

// result is a run of a job, as a streak sees it.
type result struct {
	id                   uuid.UUID
	slot                 time.Time
	fails, well, settled bool
}

// count adds a run that is older or newer than all counted so far.
func (s *streak) count(r result) {
	if s.top == uuid.Nil || pg.CompareIDs(r.id, s.top) > 0 {
		s.top = r.id
	}
	if s.low == uuid.Nil || pg.CompareIDs(r.id, s.low) < 0 {
		s.low = r.id
	}
	if r.fails {
		s.failures++
		if s.failures == 1 || r.slot.Before(s.since) {
			s.since = r.slot
		}
	}
}

// add adds the newest runs, newest first: those after top, or the newest most. It returns the streak with all of them,
// and keeps those that are settled.
func (s *streak) add(newest []result, most int) (now streak) {
	if i := slices.IndexFunc(newest, func(r result) bool { return r.well }); i >= 0 {
		*s = streak{low: newest[i].id, top: newest[i].id, whole: true}
		newest = newest[:i]
	} else if len(newest) >= most || s.top == uuid.Nil {
		*s = streak{whole: len(newest) < most}
	}
	settled := true
	for _, r := range slices.Backward(newest) {
		if settled = settled && r.settled; settled {
			s.count(r)
		}
	}
	now = *s
	for _, r := range newest {
		if s.top == uuid.Nil || pg.CompareIDs(r.id, s.top) > 0 {
			now.count(r)
		}
	}
	return now
}

// extend adds older runs, newest first: those before low, or the newest most of them.
func (s *streak) extend(older []result, most int) {
	for _, r := range older[:min(len(older), most)] {
		if r.well {
			s.whole = true
			return
		}
		s.count(r)
	}
	s.whole = len(older) < most
}

// streaks are the streaks of failing jobs of tenants, as a replica has read them.
type streaks struct {
	mu sync.Mutex
	of map[int32]map[uuid.UUID]streak
}

func (s *streaks) known(tenant int32, job uuid.UUID) streak {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of[tenant][job]
}

// keep replaces what is known of a tenant's jobs: a job that is no longer shown is forgotten.
func (s *streaks) keep(tenant int32, known map[uuid.UUID]streak) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[int32]map[uuid.UUID]streak{}
	}
	if s.of[tenant] = known; len(known) == 0 {
		delete(s.of, tenant)
	}
}

// countInARow says since when jobs have failed, and how often since.
func (b *Board) countInARow(ctx context.Context, q pg.Querier, tenant int32, jobs []FailingJob, now time.Time) error {
	known := make(map[uuid.UUID]streak, len(jobs))
	defer func() { b.streaks.keep(tenant, known) }()
	ranges := make([]span, len(jobs))
	for i, j := range jobs {
		known[j.JobID] = b.streaks.known(tenant, j.JobID)
		ranges[i] = span{job: j.JobID, after: known[j.JobID].top, below: uuid.Max, most: freshRuns}
		if ranges[i].after == uuid.Nil {
			ranges[i].most = firstRuns
		}
	}
	fresh, err := readResults(ctx, q, ranges, now)
	if err != nil {
		return err
	}
	var older []span
	for i := range jobs {
		s := known[jobs[i].JobID]
		sum := s.add(fresh[jobs[i].JobID], ranges[i].most)
		jobs[i].tell(sum)
		known[jobs[i].JobID] = s
		if !s.whole {
			older = append(older, span{job: jobs[i].JobID, below: cmp.Or(s.low, sum.low)})
		}
	}
	if len(older) == 0 {
		return nil
	}
	most := olderRuns / len(older)
	for i := range older {
		older[i].most = most
	}
	found, err := readResults(ctx, q, older, now)
	for i := range jobs {
		job := jobs[i].JobID
		if s := known[job]; err == nil && !s.whole && s.top != uuid.Nil {
			unsettled := jobs[i].Failures - s.failures
			s.extend(found[job], most)
			known[job] = s
			sum := s
			sum.failures += unsettled
			jobs[i].tell(sum)
		}
	}
	return err
}

// tell tells of a streak. A job fails once at least: its run may be gone with its day.
func (j *FailingJob) tell(s streak) {
	j.Failures, j.More = max(1, s.failures), !s.whole
	if s.failures > 0 {
		j.Since = s.since
	}
}

// span are runs of a job: those after one run and before another, or the newest of them.
type span struct {
	job, after, below uuid.UUID
	most              int
}

// readResults reads the runs in spans, newest first, no further than to a success.
func readResults(
	ctx context.Context, q pg.Querier, spans []span, now time.Time,
) (map[uuid.UUID][]result, error) {
	found := make(map[uuid.UUID][]result, len(spans))
	over, most := map[uuid.UUID]bool{}, map[uuid.UUID]int{}
	search := days.Search{Index: days.All, Since: now, Until: time.Unix(0, 0)}
	for _, s := range spans {
		most[s.job] = s.most
		search.Since = jobspec.Earlier(search.Since, domain.IDTime(s.after))
		if s.below == uuid.Max {
			search.Until = time.Time{}
		} else if !search.Until.IsZero() && domain.IDTime(s.below).After(search.Until) {
			search.Until = domain.IDTime(s.below)
		}
	}
	left := slices.Clone(spans)
	edge := domain.FirstRunID(now.Add(-settledFor))
	_, err := search.Back(ctx, q, func(ctx context.Context, q pg.Querier, w days.Window) (bool, error) {
		var b pgx.Batch
		b.Queue(days.InOrder)
		w.Queue(&b, selectResults(w),
			pg.Column(left, func(s span) uuid.UUID { return s.job }),
			pg.Column(left, func(s span) uuid.UUID { return s.after }),
			pg.Column(left, func(s span) uuid.UUID { return s.below }), edge,
			pg.Column(left, func(s span) int { return s.most }),
		).Query(func(rows pgx.Rows) error {
			var job uuid.UUID
			var r result
			return pg.Each(rows, []any{&job, &r.id, &r.slot, &r.fails, &r.well, &r.settled}, func() {
				if !over[job] {
					found[job] = append(found[job], r)
					over[job] = r.well || len(found[job]) >= most[job]
				}
			})
		})
		err := q.SendBatch(ctx, &b).Close()
		left = slices.DeleteFunc(left, func(s span) bool {
			return over[s.job] || !domain.IDTime(s.after).Before(w.From)
		})
		return len(left) == 0, err
	})
	return found, pg.Wrap("counting the failures of jobs", err)
}

// selectResults selects the newest runs of jobs ($1) after ($2) and before ($3) others, within a window, up to
// a number ($5) of each.
func selectResults(w days.Window) string {
	return fmt.Sprintf(`
SELECT w.job, r.id, r.scheduled_for, %[1]s, r.status = 'succeeded', r.finished_at IS NOT NULL AND r.id < $4
FROM unnest((SELECT $1::uuid[]), (SELECT $2::uuid[]), (SELECT $3::uuid[]), (SELECT $5::int[]))
    w(job, after, below, most)
CROSS JOIN LATERAL (
    SELECT * FROM punctual.runs r
    WHERE %[2]s AND %[3]s AND %[4]s AND r.step IS NULL
    %[5]s LIMIT w.most) r
ORDER BY w.job, r.id DESC`, failing, ofJob.After(`r`, `w.after`), ofJob.Below(`r`, `w.below`), w.Of(`r`, ofJob),
		ofJob.Order(`r`, days.NewestFirst))
}
