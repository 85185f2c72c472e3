package letters

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/store/audit"
	"punctual/store/jobs"
	"punctual/store/pg"
)

// lockWait is how long a batch waits for a lock. It holds its jobs meanwhile.
const lockWait = 500 * time.Millisecond

// jobsPart is the part of an operation's jobs whose turn it is.
type jobsPart struct {
	tenant int32
	actor  audit.Actor // whose request it is
	change jobs.Change
	part   int32
	jobs   []uuid.UUID
}

// workJobs changes the next jobs of an operation. A job is changed as the caller who asked for the operation, and the
// audit log says so.
func (o *bulk) workJobs(ctx context.Context, tx *pg.Tx) error {
	if err := pg.Exec(ctx, tx, `SELECT set_config('lock_timeout', $1, true)`, lockWait.String()); err != nil {
		return fmt.Errorf("limiting the wait for locks: %w", err)
	}
	p, err := o.nextPart(ctx, tx)
	if some, err := pg.Some(err); !some {
		return pg.Wrap("reading the jobs of operation "+o.id.String(), err)
	}
	now, err := pg.Clock(ctx, tx)
	if err != nil {
		return err
	}
	o.days = []time.Time{now}
	turn := p.jobs[:min(len(p.jobs), o.size(o.letters.pace.next()))]
	o.held, o.since = len(turn), time.Now()
	results, passed, err := o.letters.jobs.ChangeMany(audit.WithActor(ctx, p.actor), tx, p.tenant, turn, p.change)
	if err != nil {
		return err
	}
	var rest []uuid.UUID
	for _, id := range turn {
		switch failure, over := results[id]; {
		case !over:
			rest = append(rest, id)
		case failure != nil:
			o.failed++
			o.trouble = failure.Error()
		default:
			o.done++
		}
	}
	o.made, o.passed = o.done+o.failed, passed
	return o.keep(ctx, tx, p.part, append(rest, p.jobs[len(turn):]...))
}

func (o *bulk) nextPart(ctx context.Context, tx *pg.Tx) (p jobsPart, err error) {
	var request []byte
	var address string
	p.change.Action, p.change.Note = jobs.Action(o.kind), o.note
	if err := tx.QueryRow(ctx, `
		SELECT o.tenant, o.request, o.actor_kind, coalesce(o.actor, ''), coalesce(host(o.address), ''),
		       coalesce(o.request_id, ''), coalesce(k.name, ''), p.part, p.jobs
		FROM punctual.operations o JOIN punctual.operation_jobs p ON p.operation = o.id
		LEFT JOIN punctual.api_keys k ON o.actor_kind = 'key' AND k.id::text = o.actor
		WHERE o.id = $1 ORDER BY p.part LIMIT 1`, o.id).
		Scan(&p.tenant, &request, &p.actor.Kind, &p.actor.Name, &address, &p.actor.RequestID, &p.actor.KeyName, &p.part,
			&p.jobs); err != nil {
		return p, err
	}
	if address != "" {
		if p.actor.Address, err = netip.ParseAddr(address); err != nil {
			return p, err
		}
	}
	var text jobsText
	err = json.Unmarshal(request, &text)
	p.change.Filter, p.change.Until = text.Filter, text.Until
	return p, err
}

// keep writes which jobs of a part are left. If another transaction has locked all jobs whose turn it was, the part
// goes behind the others.
func (o *bulk) keep(ctx context.Context, tx *pg.Tx, part int32, rest []uuid.UUID) error {
	var b pgx.Batch
	if len(rest) == 0 {
		b.Queue(`DELETE FROM punctual.operation_jobs WHERE operation = $1 AND part = $2`, o.id, part)
	} else {
		b.Queue(`
			UPDATE punctual.operation_jobs SET jobs = $3, part = CASE WHEN $4 THEN part ELSE (
			    SELECT max(l.part) + 1 FROM punctual.operation_jobs l WHERE l.operation = $1) END
			WHERE operation = $1 AND part = $2`, o.id, part, rest, o.made > 0)
	}
	b.Queue(`SELECT EXISTS (SELECT FROM punctual.operation_jobs WHERE operation = $1)`, o.id).
		QueryRow(pg.IntoPlaces(&o.left))
	return pg.Wrap("noting the jobs that are left of operation "+o.id.String(), tx.SendBatch(ctx, &b).Close())
}
