package store

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"punctual/store/pg"
)

// AuditRecord is one entry of the audit log.
type AuditRecord struct {
	ID            uuid.UUID
	At            time.Time
	ActorKind     ActorKind
	Actor         string // a key's id, a token's subject, a login; empty where the actor is unknown
	ActorName     string // the key's name, if the actor is a key of this tenant
	Address       *netip.Addr
	RequestID     string
	Action        Action
	ResourceID    *uuid.UUID // nil: the resource has no such id
	JobID         *uuid.UUID // nil: the entry is about no single job
	Name          string
	Before, After json.RawMessage // nil: the resource did not exist before, or does not after
}

// AuditFilter selects entries; empty fields select all.
type AuditFilter struct {
	Action     Action
	Actor      string // id or name of a key, subject of a token, login
	Resource   string // kind of resource, such as job
	ResourceID *uuid.UUID
	Name       string    // of the resource when it was changed
	Job        string    // name or id of a job, deleted or not
	From       time.Time // inclusive
	To         time.Time // exclusive
	pg.Page
}

const auditColumns = `a.id, a.at, a.actor_kind, coalesce(a.actor, ''), coalesce(k.name, ''), host(a.address),
	coalesce(a.request_id, ''), a.action, a.resource_id, a.job_id, coalesce(a.name, ''), a.before::text, a.after::text`

const auditTables = `punctual.audit_entries a
	LEFT JOIN punctual.api_keys k ON a.actor_kind = 'key' AND k.id::text = a.actor`

// selectAudit reads a page of entries and the first entry of the next page.
const selectAudit = `
SELECT id, at, actor_kind, actor, actor_name, address, request_id, action, resource_id, job_id, name, before, after
FROM (SELECT ` + auditColumns + `,
             sum(coalesce(octet_length(a.before::text), 0) + coalesce(octet_length(a.after::text), 0))
             OVER (ORDER BY a.id DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING)
      FROM ` + auditTables + ` %s
      ORDER BY a.id DESC LIMIT %d)
     AS p(id, at, actor_kind, actor, actor_name, address, request_id,
          action, resource_id, job_id, name, before, after, bytes)
WHERE coalesce(bytes, 0) < %d
ORDER BY id DESC`

func scanAudit(row pgx.CollectableRow) (AuditRecord, error) {
	var r AuditRecord
	var address, before, after *string
	err := row.Scan(&r.ID, &r.At, &r.ActorKind, &r.Actor, &r.ActorName, &address, &r.RequestID,
		&r.Action, &r.ResourceID, &r.JobID, &r.Name, &before, &after)
	if err != nil {
		return r, err
	}
	pg.UTC(&r.At)
	if address != nil {
		if a, err := netip.ParseAddr(*address); err == nil {
			r.Address = &a
		}
	}
	if before != nil {
		r.Before = json.RawMessage(*before)
	}
	if after != nil {
		r.After = json.RawMessage(*after)
	}
	return r, nil
}

// ListAudit returns the entries that the filter selects, newest first, and the cursor of the next page. The cursor is
// empty on the last page.
func (s *Store) ListAudit(
	ctx context.Context, tenant int32, f AuditFilter,
) (entries []AuditRecord, nextCursor string, err error) {
	var c pg.Conditions
	c.Add(`a.tenant = ?`, tenant)
	if err := c.Page(f.Page, auditCursor, `a.id < ?`); err != nil {
		return nil, "", err
	}
	q := s.reader(ctx, tenant)
	if f.Job != "" {
		if err := auditOf(ctx, &c, q, tenant, f.Job); err != nil {
			return nil, "", err
		}
	}
	auditBy(&c, f)
	rows, err := q.Query(ctx, fmt.Sprintf(selectAudit, c.Where(), f.Size()+1, pg.MostListed), c.Args...)
	if err != nil {
		return nil, "", fmt.Errorf("listing the audit log: %w", err)
	}
	page := pg.LargePage{Page: f.Page}
	entries, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (AuditRecord, error) {
		r, err := scanAudit(row)
		page.Add(len(r.Before) + len(r.After))
		return r, err
	})
	if err != nil {
		return nil, "", fmt.Errorf("listing the audit log: %w", err)
	}
	entries, nextCursor = pg.Cut(entries, page.Page, auditCursor, func(r AuditRecord) uuid.UUID { return r.ID })
	return entries, nextCursor, nil
}

// auditOf selects the entries about a job. A job's id, or its present name, also finds entries from when the job had
// another name. A name that no job has any more finds the entries that were made under it.
func auditOf(ctx context.Context, c *pg.Conditions, q pg.Querier, tenant int32, job string) error {
	if id, ok := parseID(job); ok {
		c.Add(`a.job_id = ?`, id)
		return nil
	}
	rows, err := q.Query(ctx, `SELECT id FROM punctual.jobs WHERE tenant = $1 AND name = $2`, tenant, job)
	if err != nil {
		return fmt.Errorf("looking for jobs by name: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return fmt.Errorf("looking for jobs by name: %w", err)
	}
	if len(ids) == 0 {
		c.Add(`a.job_id IS NOT NULL AND a.name = ?`, job)
		return nil
	}
	c.Add(`a.job_id = ANY(?::uuid[])`, ids)
	return nil
}

// auditBy adds the conditions of a filter, except its page and its job.
func auditBy(c *pg.Conditions, f AuditFilter) {
	if f.Action != "" {
		c.Add(`a.action = ?`, string(f.Action))
	}
	if f.Resource != "" {
		auditAbout(c, f.Resource)
	}
	if f.Actor != "" {
		c.Add(`(a.actor = ? OR k.name = ?)`, f.Actor, f.Actor)
	}
	if f.ResourceID != nil {
		c.Add(`a.resource_id = ?`, *f.ResourceID)
	}
	if f.Name != "" {
		c.Add(`a.name = ?`, f.Name)
	}
	// An id begins with the time, to the millisecond, so the index on ids serves these conditions.
	if !f.From.IsZero() {
		c.Add(`a.id >= ? AND a.at >= ?`, firstRunID(f.From), f.From)
	}
	if !f.To.IsZero() {
		c.Add(`a.id < ? AND a.at < ?`, firstRunID(f.To.Add(time.Millisecond)), f.To)
	}
}

// auditAbout selects the entries about one kind of resource. Entries about keys, secrets and tenants are rare among
// those about jobs. Entries without a job have an index of their own, which the extra condition allows.
func auditAbout(c *pg.Conditions, kind string) {
	var actions []string
	for _, a := range Actions {
		if a.Resource() == kind {
			actions = append(actions, string(a))
		}
	}
	c.Add(`a.action = ANY(?::text[])`, actions)
	switch {
	case strings.HasSuffix(kind, "secret"), kind == "api_key", kind == "tenant":
		c.Add(`a.job_id IS NULL`)
	}
}
