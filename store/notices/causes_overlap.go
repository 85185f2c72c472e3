package notices

import (
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/notice"
	"punctual/store/pg"
)

// mostOverlaps is how many jobs that skip slots are a subject each. All others of a recipient share one, which names
// some of them.
const (
	mostOverlaps      = together
	mostOverlapsNamed = 100
)

// overlap is what a cause has if it is that slots are skipped. It lasts for as long as notified says so of the job, or
// of any job that has no subject of its own.
type overlap struct {
	Jobs   []domain.News `json:"jobs,omitempty"`
	More   int           `json:"more,omitempty"`   // jobs that are not named
	Joined int           `json:"joined,omitempty"` // how often jobs joined
	Sent   int           `json:"sent,omitempty"`   // Joined, when the newest message about it was written
	Told   bool          `json:"told,omitempty"`   // the recipient may know of it
}

func isOverlap(e domain.NewsEvent) bool { return e.Event == domain.EventOverlapping }

func overlapKey(tenant, job string) string {
	return strings.Join([]string{string(notice.KindOverlap), tenant, job}, ":")
}

// crowdedNow selects which of the jobs named in $3 skip most slots now; "", if any job does that is not named.
const crowdedNow = `
ARRAY(SELECT j.name FROM punctual.notified n JOIN punctual.jobs j ON j.id = n.job_id
      WHERE n.overlapping_since IS NOT NULL AND j.tenant = t.id AND j.name = ANY($3::text[])) ||
CASE WHEN '' = ANY($3::text[]) AND EXISTS (
          SELECT FROM punctual.notified n JOIN punctual.jobs j ON j.id = n.job_id
          WHERE n.overlapping_since IS NOT NULL AND j.tenant = t.id AND j.name <> ALL($3::text[]))
     THEN '{""}'::text[] ELSE '{}' END`

// queueOverlaps queues the statement that adds jobs most of whose slots are skipped to the causes of their lines.
func queueOverlaps(b *pgx.Batch, crowded []joining, lines map[uuid.UUID]*line) {
	var ids []uuid.UUID
	for _, j := range crowded {
		lines[j.line].overlaps(j.news)
		if !slices.Contains(ids, j.line) {
			ids = append(ids, j.line)
		}
	}
	if len(ids) > 0 {
		b.Queue(`
			UPDATE punctual.notice_lines l SET causes = u.causes::jsonb, look_at = now(), due_at = least(l.due_at, now())
			FROM unnest($1::uuid[], $2::text[]) AS u(id, causes)
			WHERE l.id = u.id`, ids, pg.Column(ids, func(id uuid.UUID) string { return asText(lines[id].causes) }))
	}
}

// overlaps adds a job to the causes.
func (l *line) overlaps(news domain.News) {
	key, n := overlapKey(news.Tenant, news.Job), 0
	for other := range l.causes {
		if kind, _, _ := kindOf(other); kind == notice.KindOverlap {
			n++
		}
	}
	if _, known := l.causes[key]; !known && n >= mostOverlaps {
		key = overlapKey(news.Tenant, "")
	}
	e := news.Events[0]
	c, open := l.causes[key]
	if !open {
		c = cause{Since: e.FirstAt, Newest: e.LastAt}
		if e.Since != nil {
			c.Since = *e.Since
		}
	}
	c.Jobs = slices.DeleteFunc(c.Jobs, func(other domain.News) bool { return other.JobID == news.JobID })
	if c.Jobs = append(c.Jobs, news); len(c.Jobs) > mostOverlapsNamed {
		c.Jobs, c.More = c.Jobs[1:], c.More+1
	}
	c.Joined, c.Again = c.Joined+1, true
	l.causes[key] = c
}

// tellOverlap says of a cause that it is so, or that it is over. What is over before the recipient could hear of it is
// not told.
func (l *line) tellOverlap(key, job string, w world) (s notice.Subject, tells bool) {
	c := l.causes[key]
	lasts := slices.Contains(w.crowded, job)
	if !lasts && !c.Told {
		delete(l.causes, key)
		return s, false
	}
	s = notice.Subject{
		Kind: notice.KindOverlap, Name: job, Key: key, State: notice.StateFiring, Since: &c.Since,
		Jobs: slices.Clone(c.Jobs), More: c.More,
	}
	switch {
	case job == "":
		s.Name = w.tenant
	case len(s.Jobs) == 0: // what was told is not known any more
		s.Jobs = []domain.News{{Job: job, Tenant: w.tenant, Events: []domain.NewsEvent{}}}
	}
	tells = c.Again
	if !lasts {
		s.State, tells = notice.StateResolved, true
		l.Over = append(l.Over, key)
		for i := range s.Jobs {
			s.Jobs[i].Events = []domain.NewsEvent{{
				Event: domain.EventOverlapOver, Count: 1, FirstAt: l.now, LastAt: l.now, Since: &c.Since,
				Runs: []domain.NewsRun{},
			}}
		}
	}
	if tells {
		c.Told, c.Sent = true, c.Joined
	}
	l.causes[key] = c
	l.look(l.now.Add(time.Minute))
	return s, tells
}
