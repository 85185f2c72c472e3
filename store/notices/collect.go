package notices

import (
	"context"
	"net/url"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/aside"
	"punctual/store/definitions"
	"punctual/store/pg"
	"punctual/store/seal"
)

// collectBatch is how many notices one batch reads to find jobs with notices. It then collects all of these jobs.
const collectBatch = 500

// collection is one batch of notices that join the states of recipients.
type collection struct {
	notifier *Notifier
	tx       *pg.Tx
	now      time.Time
	jobs     []*collected // their rows of notified are locked
	later    []uuid.UUID
	until    []time.Time // when the jobs in later are looked at again
}

// collected is a job with notices for its notify URLs.
type collected struct {
	key    definitions.Version // the current version
	tenant int32
	job    *domain.Job
	list   []jobspec.Notify // the recipients: the job's own list, or the tenant's
	digest domain.Digest

	overlaps bool // most of its slots are skipped now
}

// dueNotices are the notices that are to be told, by their jobs.
var dueNotices = aside.Rows{Kind: aside.Notice, Table: "notices", ID: "job_id", Are: "r.tell_at <= now()"}

// Collect adds notices to the states of the recipients of jobs, as far as they may be sent by now. Jobs that are stale
// by now get their notice. Then the notices of each job join the state of each recipient that asked for any of them, in
// the transaction that deletes the notices. A lock on the job's row of notified keeps two replicas from collecting one
// part each. No transaction waits for that lock here. left is true if there may be more.
func (s *Notifier) Collect(ctx context.Context) (left bool, err error) {
	watched, err := s.findStale(ctx)
	if err != nil {
		return false, err
	}
	found, err := s.aside.Select(ctx, s.db.Chores, dueNotices, `
		SELECT DISTINCT n.job_id
		FROM (SELECT job_id FROM punctual.notices
		      WHERE tell_at <= now() AND job_id <> ALL($2::uuid[]) ORDER BY tell_at LIMIT $1) n`,
		collectBatch)
	if err == nil {
		err = s.aside.Each(ctx, aside.Notice, found, func(ctx context.Context, jobs []uuid.UUID) error {
			more, err := s.collect(ctx, jobs)
			left = left || more
			return err
		})
	}
	return left || watched, pg.Wrap("creating notices of jobs", err)
}

// collect adds the notices of jobs to the states of their recipients.
func (s *Notifier) collect(ctx context.Context, jobs []uuid.UUID) (told bool, err error) {
	err = s.db.Chores.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		t := collection{notifier: s, tx: tx}
		if err := t.lock(ctx, jobs); err != nil {
			return err
		}
		told = len(t.jobs) > 0
		if err := t.choose(ctx); err != nil {
			return err
		}
		return t.write(ctx)
	})
	return told, err
}

// lock locks the jobs' rows of notified, and inserts missing ones. It deletes the notices of jobs that no longer exist.
func (t *collection) lock(ctx context.Context, jobs []uuid.UUID) error {
	var b pgx.Batch
	b.Queue(`
		DELETE FROM punctual.notices n
		WHERE n.job_id = ANY($1::uuid[]) AND NOT EXISTS (SELECT FROM punctual.jobs j WHERE j.id = n.job_id)`, jobs)
	b.Queue(`
		INSERT INTO punctual.notified (job_id)
		SELECT j.id FROM punctual.jobs j WHERE j.id = ANY($1::uuid[]) ORDER BY j.id
		ON CONFLICT DO NOTHING`, jobs)
	b.Queue(`
		SELECT now(), job_id FROM punctual.notified
		WHERE job_id = ANY($1::uuid[]) ORDER BY job_id FOR NO KEY UPDATE SKIP LOCKED`, jobs).
		Query(func(rows pgx.Rows) error {
			return pg.Each2(rows, func(now time.Time, id uuid.UUID) {
				t.now, t.jobs = now, append(t.jobs, &collected{key: definitions.Version{Job: id}})
			})
		})
	return t.tx.SendBatch(ctx, &b).Close()
}

// choose reads, under the lock, the jobs and when each event was last told. It keeps the jobs with any event that may
// be told now; their other events are told along with it.
func (t *collection) choose(ctx context.Context) error {
	rows := pg.Query(ctx, t.tx, `
		SELECT j.id, j.version, j.name, j.tenant, o.name, o.notify, n.overlapping_since IS NOT NULL,
		       coalesce((SELECT min(greatest(now(), (n.sent ->> x.event)::timestamptz + `+Gap+`))
		                 FROM punctual.notices x WHERE x.job_id = u.id), now())
		FROM unnest($1::uuid[]) AS u(id)
		JOIN punctual.notified n ON n.job_id = u.id
		JOIN punctual.jobs j ON j.id = u.id
		JOIN punctual.tenants o ON o.id = j.tenant
		ORDER BY j.id`, t.ids())
	t.jobs = t.jobs[:0]
	var j collected
	var when time.Time
	if _, err := pgx.ForEachRow(rows, []any{
		&j.key.Job, &j.key.Version, &j.digest.Job, &j.tenant, &j.digest.Tenant, &j.list, &j.overlaps, &when,
	}, func() error {
		if when.After(t.now) {
			t.putOff(j.key.Job, when)
			return nil
		}
		j.digest.JobID = j.key.Job
		t.jobs = append(t.jobs, new(j))
		return nil
	}); err != nil {
		return err
	}
	return t.define(ctx)
}

func (t *collection) putOff(job uuid.UUID, until time.Time) {
	t.later, t.until = append(t.later, job), append(t.until, until)
}

func (t *collection) ids() []uuid.UUID {
	return pg.Column(t.jobs, func(j *collected) uuid.UUID { return j.key.Job })
}

// define reads the current definitions, which name the recipients. A job whose definition this binary cannot read waits
// for a binary that can.
func (t *collection) define(ctx context.Context) error {
	versions := definitions.Of(t.jobs, func(j *collected) (definitions.Version, int32) { return j.key, j.tenant })
	found, err := t.notifier.definitions.Read(ctx, t.tx, versions)
	if err != nil {
		return err
	}
	t.jobs = slices.DeleteFunc(t.jobs, func(j *collected) bool {
		if j.job = found.Jobs[j.key]; j.job != nil {
			j.digest.Host = host(j.job.URL())
			if j.job.Notify != nil {
				j.list = j.job.Notify
			}
			j.digest.Runbook, j.digest.Labels = j.job.Runbook, t.notifier.labels(j.job.Labels)
			return false
		}
		t.notifier.options.Log.Error(
			"this version of Punctual cannot create notices of a job; it is tried again in a minute",
			"job", j.key.Job, "version", j.key.Version, "error", found.Broken[j.key])
		t.putOff(j.key.Job, t.now.Add(definitions.RetryIn))
		return true
	})
	return nil
}

// For each event of a job, all notices are counted, and the newest are described. Of missed slots and late runs the
// newest says why.
const takeNotices = `
WITH gone AS (DELETE FROM punctual.notices WHERE job_id = ANY($1::uuid[]) RETURNING *),
counted AS (
    SELECT *, row_number() OVER newest AS age, count(*) OVER same AS total,
           min(happened_at) OVER same AS first_at, max(happened_at) OVER same AS last_at,
           max(id) OVER same AS last_id,
           sum(CASE event WHEN 'missed' THEN coalesce(slots, 1001) ELSE 0 END) OVER same AS missed
    FROM gone
    WINDOW same AS (PARTITION BY job_id, event),
           newest AS (PARTITION BY job_id, event ORDER BY happened_at DESC, id DESC))
SELECT job_id, event, total, missed, first_at, last_at, since, coalesce(failures, 0), run_id,
       coalesce(scheduled_for, happened_at), happened_at, slots, coalesce(reason, ''),
       coalesce(http_status, 0),
       coalesce(error, h.detail, ''),
       coalesce(response, ''), coalesce(h.cause, ''), coalesce(h.name, '')
FROM counted
LEFT JOIN LATERAL (
    SELECT h.cause, h.detail, CASE h.cause
           WHEN 'limit' THEN (SELECT u.held_by FROM punctual.tenant_usage u WHERE u.tenant = r.tenant)
           WHEN 'queue_unserved' THEN (SELECT q.name FROM punctual.queues q WHERE q.id = r.lane / 4) END AS name
    FROM punctual.runs_of(ARRAY[run_id]) r
    CROSS JOIN LATERAL punctual.held_up_by(r.tenant, (r.lane / 4)::smallint, r.due_at, r.created_at) h
    WHERE event IN ('missed', 'late') AND age = 1) h ON true
WHERE age <= $2 ORDER BY job_id, last_at, last_id, event, age`

// take deletes the notices, and collects them in a digest for each job.
func (t *collection) take(ctx context.Context) error {
	rows := pg.Query(ctx, t.tx, takeNotices, t.ids(), domain.DigestRuns)
	digests := make(map[uuid.UUID]*domain.Digest, len(t.jobs))
	for _, j := range t.jobs {
		digests[j.key.Job] = &j.digest
	}
	var job uuid.UUID
	var e domain.DigestEvent
	var r domain.DigestRun
	var run *uuid.UUID
	_, err := pgx.ForEachRow(rows, []any{
		&job, &e.Event, &e.Count, &e.Slots, &e.FirstAt, &e.LastAt, &e.Since, &e.Failures, &run, &r.ScheduledFor,
		&r.HappenedAt, &r.Slots, &r.Reason, &r.HTTPStatus, (*seal.Shown)(&r.Error),
		(*seal.Shown)(&r.Response),
		&e.Cause, &e.CauseName,
	}, func() error {
		n := digests[job]
		if k := len(n.Events); k == 0 || n.Events[k-1].Event != e.Event {
			e.Runs = []domain.DigestRun{}
			n.Events = append(n.Events, e)
			e.Since = nil // the event in the list owns it now
		}
		r.Error = cut(r.Error)
		if run != nil {
			r.ID, r.Link = *run, t.notifier.link("/runs/"+run.String())
			last := &n.Events[len(n.Events)-1]
			last.Runs = append(last.Runs, r)
		}
		return nil
	})
	for _, n := range digests {
		n.Link = t.notifier.linkToJob(n.Job)
	}
	return err
}

// mostSaid is how many characters of an error a notice has.
const mostSaid = 1000

func cut(said string) string {
	if letters := []rune(said); len(letters) > mostSaid {
		return string(letters[:mostSaid])
	}
	return said
}

// host returns the host of a URL with its port; empty if a placeholder names it.
func host(u *url.URL) string {
	if u.Port() != "" || u.Hostname() == "" {
		return u.Host
	}
	return u.Host + ":" + wire.PortOf(u)
}

func (s *Notifier) linkToJob(name string) string {
	path := "/jobs/" + url.PathEscape(name)
	if !s.options.Pages {
		path += "/runs"
	}
	return s.link(path)
}

// link returns a URL where people can read more: a page, or the operation of the API that has the same path. It is
// empty if the public URL is not known.
func (s *Notifier) link(path string) string {
	switch {
	case s.options.PublicURL == "":
		return ""
	case s.options.Pages:
		return s.options.PublicURL + path
	}
	return s.options.PublicURL + "/v1" + path
}

// write postpones the jobs of later, and adds what is new of the rest to the states of their recipients.
func (t *collection) write(ctx context.Context) error {
	var b pgx.Batch
	if len(t.later) > 0 {
		b.Queue(`
			UPDATE punctual.notices n SET tell_at = u.until FROM unnest($1::uuid[], $2::timestamptz[]) AS u(job_id, until)
			WHERE n.job_id = u.job_id AND n.tell_at <= now()`, t.later, t.until)
	}
	if len(t.jobs) > 0 {
		if err := t.take(ctx); err != nil {
			return err
		}
		if err := t.join(ctx, &b); err != nil {
			return err
		}
	}
	if b.Len() == 0 {
		return nil
	}
	return t.tx.SendBatch(ctx, &b).Close()
}
