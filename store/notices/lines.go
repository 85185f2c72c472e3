package notices

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/pg"
	"punctual/store/seal"
)

// gap is Gap in Go.
const gap = 5 * time.Minute

// lineOf returns the id of a recipient's line.
func lineOf(tenant int32, to domain.Recipient) uuid.UUID {
	return uuid.NewSHA1(uuid.Nil, fmt.Appendf(nil, "%d %q %q %q %q", tenant, to.Format, to.URL, to.Secret, to.Template))
}

// joining is news of a job for a recipient.
type joining struct {
	job      *toldJob
	to       domain.Recipient
	line     uuid.UUID
	news     domain.News
	resolves bool
}

// join adds the news of the jobs to the lines of their recipients. A job's news that a recipient has not been sent yet
// is merged with what is new, so a line never has more than one row for a job. The lines are locked in the order of
// their ids, before their rows: a claim of a line does so too.
func (t *telling) join(ctx context.Context, b *pgx.Batch) error {
	var all, crowded []joining
	var jobs []uuid.UUID // and of which events their recipients are told
	var events []string
	for _, j := range t.jobs {
		for _, to := range domain.Recipients(j.list) {
			news := j.news.For(to, j.list)
			if len(news.Events) == 0 {
				continue
			}
			joins := joining{j, to, lineOf(j.tenant, to), news, to.Asks(j.list, domain.EventRecovered)}
			if i := slices.IndexFunc(news.Events, isOverlap); i >= 0 {
				apart := joins
				apart.news.Events = news.Events[i : i+1]
				crowded = append(crowded, apart)
				joins.news.Events = slices.Concat(news.Events[:i], news.Events[i+1:])
			}
			if len(joins.news.Events) > 0 {
				all = append(all, joins)
			}
			for _, e := range news.Events {
				jobs, events = append(jobs, j.key.Job), append(events, string(e.Event))
			}
		}
	}
	if len(jobs) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b joining) int {
		return cmp.Or(slices.Compare(a.line[:], b.line[:]), slices.Compare(a.job.key.Job[:], b.job.key.Job[:]))
	})
	lines, err := t.lockLines(ctx, slices.Concat(all, crowded))
	if err != nil {
		return err
	}
	queueOverlaps(b, crowded, lines)
	if len(all) > 0 {
		if err := t.mergeUnsent(ctx, all); err != nil {
			return err
		}
		queueJoining(b, all, lines, t.now)
	}
	b.Queue(`
		UPDATE punctual.notified n
		SET sent = n.sent || u.sent
		FROM (SELECT job_id, jsonb_object_agg(event, now()) AS sent
		      FROM unnest($1::uuid[], $2::text[]) AS u(job_id, event) GROUP BY job_id) u
		WHERE n.job_id = u.job_id`, jobs, events)
	return nil
}

// lockLines locks the lines in the order of their ids, and makes missing ones. It returns what each was told.
func (t *telling) lockLines(ctx context.Context, all []joining) (map[uuid.UUID]*line, error) {
	slices.SortFunc(all, func(a, b joining) int { return slices.Compare(a.line[:], b.line[:]) })
	lines := slices.CompactFunc(all, func(a, b joining) bool { return a.line == b.line })
	ids := pg.Column(lines, func(j joining) uuid.UUID { return j.line })
	locked := make(map[uuid.UUID]*line, len(lines))
	var b pgx.Batch
	b.Queue(`
		INSERT INTO punctual.notice_lines (id, tenant, format, url, secret, template)
		SELECT *
		FROM unnest($1::uuid[], $2::int4[], $3::text[], $4::text[], $5::text[], $6::text[])
		     AS u(id, tenant, format, url, secret, template)
		ORDER BY u.id
		ON CONFLICT DO NOTHING`, ids,
		pg.Column(lines, func(j joining) int32 { return j.job.tenant }),
		pg.Column(lines, func(j joining) string { return string(j.to.Format) }),
		pg.Column(lines, func(j joining) string { return j.to.URL }),
		pg.Column(lines, func(j joining) string { return j.to.Secret }),
		pg.Column(lines, func(j joining) string { return j.to.Template }))
	b.Queue(`
		SELECT id, sent, causes FROM punctual.notice_lines WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE`, ids).
		Query(func(rows pgx.Rows) error {
			return pg.Each3(rows, func(id uuid.UUID, sent map[string]time.Time, causes map[string]cause) {
				locked[id] = &line{sent: sent, causes: causes}
			})
		})
	return locked, t.tx.SendBatch(ctx, &b).Close()
}

// mergeUnsent merges the news with news that is in no message yet.
func (t *telling) mergeUnsent(ctx context.Context, all []joining) error {
	at := make(map[[2]uuid.UUID]*joining, len(all))
	for i := range all {
		at[[2]uuid.UUID{all[i].line, all[i].job.key.Job}] = &all[i]
	}
	rows := pg.Query(ctx, t.tx, `
		SELECT s.line_id, s.job_id, s.news
		FROM punctual.notice_subjects s
		JOIN unnest($1::uuid[], $2::uuid[]) AS u(line_id, job_id) ON s.job_id = u.job_id AND s.line_id = u.line_id
		WHERE s.news IS NOT NULL`,
		pg.Column(all, func(j joining) uuid.UUID { return j.line }),
		pg.Column(all, func(j joining) uuid.UUID { return j.job.key.Job }))
	var line, job uuid.UUID
	var earlier *domain.News
	return pg.Each(rows, []any{&line, &job, seal.NoticeOf(&earlier)}, func() {
		j := at[[2]uuid.UUID{line, job}]
		j.news = earlier.Merge(j.news)
	})
}

// queueJoining queues the statements that write the rows of the lines. What passes is told at once, when its jobs are
// collected, or a gap after the line was last told of the same cause. All else is told at once.
func queueJoining(b *pgx.Batch, all []joining, lines map[uuid.UUID]*line, now time.Time) {
	var keys []string
	var when []time.Time
	for _, j := range all {
		at, key := now, ""
		if passes(j.news) {
			key = passingKey(j.news)
			kind, _, _ := kindOf(key)
			if last, was := lines[j.line].sent[key]; was && last.Add(gap).After(now) {
				at = last.Add(gap)
			} else if slices.Contains(collects, kind) {
				at = now.Add(collecting)
			}
		}
		keys, when = append(keys, key), append(when, at)
	}
	ids := pg.Column(all, func(j joining) uuid.UUID { return j.line })
	b.Queue(`
		INSERT INTO punctual.notice_subjects AS s (job_id, line_id, news, resolves, tell_at, key)
		SELECT u.job_id, u.line_id, u.news::json, u.resolves, u.tell_at, u.key
		FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bool[], $5::timestamptz[], $6::text[])
		     AS u(line_id, job_id, news, resolves, tell_at, key)
		ON CONFLICT (job_id, line_id) DO UPDATE
		SET news = excluded.news, resolves = excluded.resolves, key = coalesce(nullif(s.key, ''), excluded.key),
		    tell_at = least(s.tell_at, excluded.tell_at)`,
		ids, pg.Column(all, func(j joining) uuid.UUID { return j.job.key.Job }),
		pg.Column(all, func(j joining) seal.Notice { return seal.Notice(asText(j.news)) }),
		pg.Column(all, func(j joining) bool { return j.resolves }), when, keys)
	b.Queue(`
		UPDATE punctual.notice_lines l
		SET due_at = least(l.due_at, u.at)
		FROM (SELECT line_id, min(at) AS at FROM unnest($1::uuid[], $2::timestamptz[]) AS u(line_id, at) GROUP BY line_id) u
		WHERE l.id = u.line_id`, ids, when)
}
