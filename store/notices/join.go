package notices

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/scheduler/notice"
	"punctual/store/pg"
	"punctual/store/seal"
)

// gap is Gap in Go.
const gap = 5 * time.Minute

// change is what is new of one kind of trouble of a job, for a recipient.
type change struct {
	tenant    int32
	to        jobspec.Recipient
	recipient uuid.UUID
	job       uuid.UUID
	kind      string
	digest    domain.Digest
	resolves  bool
	key       string
	at        time.Time // when it is to be told
}

var changes = pg.Columns[change]{
	pg.Col("recipient_id", "uuid", func(c change) uuid.UUID { return c.recipient }),
	pg.Col("job_id", "uuid", func(c change) uuid.UUID { return c.job }),
	pg.Col("kind", "text", func(c change) string { return c.kind }),
	pg.Col("unsent", "text", func(c change) seal.Notice { return seal.Notice(asText(c.digest)) }),
	pg.Col("resolves", "bool", func(c change) bool { return c.resolves }),
	pg.Col("tell_at", "timestamptz", func(c change) time.Time { return c.at }),
	pg.Col("key", "text", func(c change) string { return c.key }),
}

// join adds what is new of the jobs to the states of their recipients. What a recipient has not been sent yet is merged
// with it, so there is never more than one row of a kind for a job. The recipients are locked in the order of their
// ids, before their rows: a claim of a recipient does so too.
func (t *collection) join(ctx context.Context, b *pgx.Batch) error {
	var all []change
	var jobs []uuid.UUID // and of which events their recipients are told
	var events []string
	for _, j := range t.jobs {
		for _, to := range domain.Recipients(j.list) {
			digest := j.digest.For(to, j.list)
			all = append(all, j.changes(to, digest)...)
			for _, e := range digest.Events {
				jobs, events = append(jobs, j.key.Job), append(events, string(e.Event))
			}
		}
	}
	if len(jobs) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b change) int {
		return cmp.Or(pg.CompareIDs(a.recipient, b.recipient), pg.CompareIDs(a.job, b.job), cmp.Compare(a.kind, b.kind))
	})
	if err := t.lockRecipients(ctx, all); err != nil {
		return err
	}
	if err := t.mergeUnsent(ctx, all); err != nil {
		return err
	}
	queueChanges(b, all)
	b.Queue(`
		UPDATE punctual.notified n
		SET sent = n.sent || u.sent
		FROM (SELECT job_id, jsonb_object_agg(event, now()) AS sent
		      FROM unnest($1::uuid[], $2::text[]) AS u(job_id, event) GROUP BY job_id) u
		WHERE n.job_id = u.job_id`, jobs, events)
	return nil
}

// changes tells apart what is new of a job by the kind of its trouble. The end of overlaps is told to all who hear of
// them. Overlaps that are over are not told.
func (j *collected) changes(to jobspec.Recipient, digest domain.Digest) (all []change) {
	for kind, resolves := range map[string]bool{health: to.Asks(j.list, jobspec.EventRecovered), overlaps: j.overlaps} {
		part := digest.Only(func(e jobspec.Event) bool { return (e == jobspec.EventOverlapping) == (kind == overlaps) })
		if len(part.Events) == 0 || kind == overlaps && !j.overlaps {
			continue
		}
		all = append(all, change{
			tenant: j.tenant, to: to, recipient: recipientID(notice.States, j.tenant, to), job: j.key.Job, kind: kind,
			digest: part, resolves: resolves,
		})
	}
	return all
}

// lockRecipients puts missing recipients into the outbox, and locks all. It decides when each change is told: what
// passes, when its jobs are collected, or a gap after the recipient was last told of the same cause; all else at once.
func (t *collection) lockRecipients(ctx context.Context, all []change) error {
	each := slices.CompactFunc(slices.Clone(all), func(a, b change) bool { return a.recipient == b.recipient })
	ids := pg.Column(each, func(c change) uuid.UUID { return c.recipient })
	sent := map[uuid.UUID]map[string]time.Time{}
	var b pgx.Batch
	b.Queue(`
		INSERT INTO punctual.outbox (id, tenant, format, url, secret, template)
		SELECT *
		FROM unnest($1::uuid[], $2::int4[], $3::text[], $4::text[], $5::text[], $6::text[])
		     AS u(id, tenant, format, url, secret, template)
		ORDER BY u.id
		ON CONFLICT DO NOTHING`, ids,
		pg.Column(each, func(c change) int32 { return c.tenant }),
		pg.Column(each, func(c change) string { return string(c.to.Format) }),
		pg.Column(each, func(c change) string { return c.to.URL }),
		pg.Column(each, func(c change) string { return c.to.Secret }),
		pg.Column(each, func(c change) string { return c.to.Template }))
	b.Queue(`SELECT id, sent FROM punctual.outbox WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE`, ids).
		Query(pg.IntoMap(sent))
	if err := t.tx.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	for i := range all {
		c := &all[i]
		c.at = t.now
		if !passes(c.digest) {
			continue
		}
		c.key = passingKey(c.digest)
		kind, _, _ := kindOf(c.key)
		if last, was := sent[c.recipient][c.key]; was && last.Add(gap).After(t.now) {
			c.at = last.Add(gap)
		} else if slices.Contains(collects, kind) {
			c.at = t.now.Add(collecting)
		}
	}
	return nil
}

// mergeUnsent merges the changes with what is in no message yet.
func (t *collection) mergeUnsent(ctx context.Context, all []change) error {
	type id struct {
		recipient, job uuid.UUID
		kind           string
	}
	at := make(map[id]*change, len(all))
	for i := range all {
		at[id{all[i].recipient, all[i].job, all[i].kind}] = &all[i]
	}
	rows := pg.Query(ctx, t.tx, `
		SELECT s.recipient_id, s.job_id, s.kind, s.unsent
		FROM punctual.notice_states s
		JOIN unnest($1::uuid[], $2::uuid[]) AS u(recipient_id, job_id)
		  ON s.job_id = u.job_id AND s.recipient_id = u.recipient_id
		WHERE s.unsent IS NOT NULL`,
		pg.Column(all, func(c change) uuid.UUID { return c.recipient }),
		pg.Column(all, func(c change) uuid.UUID { return c.job }))
	var row id
	var earlier *domain.Digest
	return pg.Each(rows, []any{&row.recipient, &row.job, &row.kind, seal.NoticeOf(&earlier)}, func() {
		if c := at[row]; c != nil {
			c.digest, at[row] = earlier.Merge(c.digest), nil
		}
	})
}

// queueChanges queues the statements that write the changes.
func queueChanges(b *pgx.Batch, all []change) {
	b.Queue(`
		INSERT INTO punctual.notice_states AS s (`+changes.Names()+`)
		SELECT u.recipient_id, u.job_id, u.kind, u.unsent::json, u.resolves, u.tell_at, u.key
		FROM `+changes.Unnest("u")+`
		ON CONFLICT (job_id, recipient_id, kind) DO UPDATE
		SET unsent = excluded.unsent, resolves = excluded.resolves, key = coalesce(nullif(s.key, ''), excluded.key),
		    ends = CASE excluded.kind WHEN 'overlaps' THEN NULL ELSE s.ends END,
		    tell_at = least(s.tell_at, excluded.tell_at)`, changes.Args(all)...)
	b.Queue(`
		UPDATE punctual.outbox o
		SET due_at = least(o.due_at, u.at)
		FROM (SELECT id, min(at) AS at FROM unnest($1::uuid[], $2::timestamptz[]) AS u(id, at) GROUP BY id) u
		WHERE o.id = u.id`,
		pg.Column(all, func(c change) uuid.UUID { return c.recipient }),
		pg.Column(all, func(c change) time.Time { return c.at }))
}
