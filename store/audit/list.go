package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/pg"
	"punctual/store/seal"
)

// JobChange is one change to a job, to its runs or to its dead letters, as anybody may see it who may read the job.
type JobChange struct {
	ID         uuid.UUID       `json:"id" format:"uuid" doc:"Its id." example:"019ada51-20c4-7f0a-8b5d-3c1f9a7e6d42"`
	At         time.Time       `json:"at" doc:"When the change was made."`
	ActorKind  ActorKind       `json:"actor_kind" enum:"anybody,key,token,command,database,link,system" doc:"How the actor authenticated. anybody: authentication is off. link: the actor is the recipient of a notice, whose link was used. system: Punctual itself, for example when a pause ends at its set time." example:"key"`
	Actor      *string         `json:"actor" doc:"Who made the change: the id of a key, the subject of a token, or a login. Null: unknown." example:"019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11"`
	ActorName  *string         `json:"actor_name" doc:"The name of the key, if the actor is one." example:"deploy"`
	Action     Action          `json:"action" doc:"The change: the kind of resource, a dot, a verb." example:"job.pause"`
	Resource   string          `db:"-" json:"resource" enum:"job,run,dead_letter,operation,api_key,tenant,secret,signing_secret,limit,deployment,breaker,set_aside" doc:"The kind of resource that was changed." example:"job"`
	ResourceID *uuid.UUID      `json:"resource_id" format:"uuid" nullable:"true" doc:"Id of the resource that was changed."`
	JobID      *uuid.UUID      `json:"job_id" format:"uuid" nullable:"true" doc:"The job that the change is about, also for a change to one of its runs."`
	Name       *string         `json:"name" doc:"The name of the resource at that time; for a run or dead letter, the name of its job." example:"daily-invoice-gen"`
	Before     json.RawMessage `json:"before" doc:"The resource before the change; if it was changed, the part that changed. Null: there was nothing to show."`
	After      json.RawMessage `json:"after" doc:"The resource after the change. Null: there is nothing to show."`
}

// Entry is one change in the audit log.
type Entry struct {
	JobChange
	Address   *string `json:"address" doc:"Where the request came from." example:"203.0.113.7"`
	RequestID *string `json:"request_id" doc:"The request's X-Request-Id." example:"7UBLQ5SRJ2ZTNBQFRQTMLNPKJE"`
}

// Cursor marks the cursors of the audit log: see pg.Page.
const Cursor byte = 'a'

// Filter selects entries; empty fields select all.
type Filter struct {
	Action     Action
	Actor      string // id or name of a key, subject of a token, login
	Key        *uuid.UUID
	Resource   string // kind of resource, such as job
	ResourceID *uuid.UUID
	Name       string    // of the resource when it was changed
	Job        string    // name or id of a job, deleted or not
	From       time.Time // inclusive
	To         time.Time // exclusive
	pg.Page
}

// Tables is an SQL FROM item: the entries a, each with the key k that is its actor, if a key is.
const Tables = `punctual.audit_entries a
	LEFT JOIN punctual.api_keys k ON a.actor_kind = 'key' AND k.id::text = a.actor`

// selectPage reads a page of entries and the first entry of the next page.
const selectPage = `
SELECT id, at, actor_kind, actor, actor_name, action, resource_id, job_id, name, before, after, address, request_id
FROM (SELECT a.id, a.at, a.actor_kind, a.actor, k.name, a.action, a.resource_id, a.job_id, a.name,
             a.before::text, a.after::text, host(a.address), a.request_id,
             sum(coalesce(octet_length(a.before::text), 0) + coalesce(octet_length(a.after::text), 0))
             OVER (ORDER BY a.id DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING)
      FROM ` + Tables + ` %s
      ORDER BY a.id DESC LIMIT %d)
     AS p(id, at, actor_kind, actor, actor_name, action, resource_id, job_id, name, before, after,
          address, request_id, bytes)
WHERE coalesce(bytes, 0) < %d
ORDER BY id DESC`

var scanEntry = seal.Rows(pgx.RowToStructByPos[Entry], "before", "after")

// List returns the entries of a tenant that the filter selects, newest first, and the cursor of the next page. The
// cursor is empty on the last page.
func (l *Log) List(
	ctx context.Context, tenant int32, f Filter,
) (entries []Entry, nextCursor string, err error) {
	var c pg.Conditions
	c.Add(`a.tenant = ?`, tenant)
	if err := c.Page(f.Page, Cursor, `a.id < ?`); err != nil {
		return nil, "", err
	}
	by(&c, f)
	var page pg.LargePage
	entries, err = pg.Past(ctx, l.db.Callers, tenant, func(ctx context.Context, q pg.Source) ([]Entry, error) {
		page = pg.LargePage{Page: f.Page}
		return read(ctx, q, tenant, f.Job, c, &page)
	})
	if err != nil {
		return nil, "", err
	}
	entries, nextCursor = pg.Cut(entries, page.Page, Cursor, func(e Entry) uuid.UUID { return e.ID })
	return entries, nextCursor, nil
}

// read reads the entries about a job, if it is not empty, that meet conditions.
func read(
	ctx context.Context, q pg.Querier, tenant int32, job string, c pg.Conditions, page *pg.LargePage,
) (entries []Entry, err error) {
	if job != "" {
		if err := of(ctx, &c, q, tenant, job); err != nil {
			return nil, err
		}
	}
	size := page.Size()
	var b pgx.Batch
	b.Queue(pg.ByIndex) // for an actor with few entries, the planner would read those of all tenants
	b.Queue(fmt.Sprintf(selectPage, c.Where(), size+1, pg.MostListed), c.Args...).
		Query(pg.Into(&entries, func(row pgx.CollectableRow) (Entry, error) {
			e, err := scanEntry(row)
			e.Resource = e.Action.Resource()
			page.Add(len(e.Before) + len(e.After))
			return e, err
		}))
	err = q.SendBatch(ctx, &b).Close()
	return entries, pg.Wrap("listing the audit log", err)
}

// of selects the entries about a job. A job's id, or its present name, also finds entries from when the job had
// another name. A name that no job has any more finds the entries that were made under it.
func of(ctx context.Context, c *pg.Conditions, q pg.Querier, tenant int32, job string) error {
	if id, ok := pg.ParseID(job); ok {
		c.Add(`a.job_id = ?`, id)
		return nil
	}
	ids, err := pg.All(ctx, q, pgx.RowTo[uuid.UUID], `
		SELECT id FROM punctual.jobs WHERE tenant = $1 AND name = $2 AND named
		UNION ALL
		SELECT id FROM punctual.jobs WHERE tenant = $1 AND name = $2 AND NOT named`, tenant, job)
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

// by adds the conditions of a filter, except its page and its job.
func by(c *pg.Conditions, f Filter) {
	c.AddIf(f.Action != "", `a.action = ?`, string(f.Action))
	if f.Resource != "" {
		about(c, f.Resource)
	}
	c.AddIf(f.Actor != "", `(a.actor = ? OR k.name = ?)`, f.Actor, f.Actor)
	if f.Key != nil {
		c.Add(`a.actor_kind = 'key' AND a.actor = ?`, f.Key.String())
	}
	c.AddIf(f.ResourceID != nil, `a.resource_id = ?`, f.ResourceID)
	c.AddIf(f.Name != "", `a.name = ?`, f.Name)
	// An id begins with the time, to the millisecond, so the index on ids serves these conditions.
	if !f.From.IsZero() {
		c.Add(`a.id >= ? AND a.at >= ?`, domain.FirstRunID(f.From), f.From)
	}
	if !f.To.IsZero() {
		c.Add(`a.id < ? AND a.at < ?`, domain.FirstRunID(f.To.Add(time.Millisecond)), f.To)
	}
}

// about selects the entries about one kind of resource. Entries about keys, secrets and tenants are rare among
// those about jobs. Entries without a job have an index of their own, which the extra condition allows.
func about(c *pg.Conditions, kind string) {
	others := func(a Action) bool { return a.Resource() != kind }
	c.Add(`a.action = ANY(?::text[])`, pg.Texts(slices.DeleteFunc(slices.Clone(Actions), others)))
	c.AddIf(strings.HasSuffix(kind, "secret") || kind == "api_key" || kind == "tenant", `a.job_id IS NULL`)
}
