package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/google/uuid"

	"punctual/scheduler/jobspec"
	"punctual/store/audit"
	"punctual/store/links"
	"punctual/store/names"
	"punctual/store/pg"
)

// resolve puts the ids of jobs in the place of their names in the links of one definition.
func resolve(ctx context.Context, q pg.Querier, tenant int32, d *jobspec.Definition) error {
	wrong, err := links.Resolve(ctx, q, tenant, nil, d)
	if err != nil {
		return err
	}
	return wrong[0]
}

// showLinks puts the names of jobs in the place of their ids.
func showLinks(ctx context.Context, q pg.Querier, jobs []Record) error {
	definitions := make([]*jobspec.Definition, len(jobs))
	for i := range jobs {
		definitions[i] = &jobs[i].Definition
	}
	broken, err := links.Show(ctx, q, definitions...)
	if err != nil {
		return err
	}
	for i := range jobs {
		jobs[i].Broken = broken[i]
	}
	return nil
}

// NameLinks puts the names of jobs in the place of their ids in what entries of the audit log show.
func (s *Jobs) NameLinks(ctx context.Context, tenant int32, entries []audit.Entry) error {
	var texts []*json.RawMessage
	for i := range entries {
		texts = append(texts, &entries[i].Before, &entries[i].After)
	}
	return links.NameIn(ctx, s.db.Callers.Reader(tenant), texts...)
}

// resolveLinks is resolve for a batch, whose jobs may name each other. A job that is about to be created gets its id
// here.
func (b *batchWrite) resolveLinks(ctx context.Context) error {
	definitions := make([]*jobspec.Definition, len(b.jobs))
	for i := range b.jobs {
		definitions[i] = &b.jobs[i].Definition
	}
	if !links.Has(definitions...) {
		return nil
	}
	found, err := names.FindAll(ctx, b.tx, b.tenant, pg.Column(definitions, func(d *jobspec.Definition) string {
		return d.Name
	}))
	if err != nil {
		return err
	}
	known := map[string]uuid.UUID{}
	for i, d := range definitions {
		old, exists := found[d.Name]
		if exists && (b.on == ConflictReplace || old.State.HoldsName()) {
			known[d.Name] = old.ID
			continue
		}
		if b.jobs[i].id, err = newID(); err != nil {
			return err
		}
		known[d.Name] = b.jobs[i].id
	}
	wrong, err := links.Resolve(ctx, b.tx, b.tenant, known, definitions...)
	maps.Copy(b.errs, wrong)
	return err
}

// writeLinks writes the links of a batch. An error of a single job is among the errors of the batch.
func (b *batchWrite) writeLinks(ctx context.Context) error {
	changes, at := b.links, map[uuid.UUID]int{}
	for i, r := range b.results {
		at[r.ID] = i
		if r.Result == BatchCreated {
			changes = append(changes, links.Change{Job: r.ID, Now: b.jobs[i].Definition.Then})
		}
	}
	err := links.Write(ctx, b.tx, b.tenant, changes...)
	if refused, is := errors.AsType[*links.Refused](err); is {
		b.errs[at[refused.Job]] = err
	}
	return err
}

// release refuses to delete a job that others trigger, unless it is forced. It keeps others from naming the job until
// the transaction ends. The caller deletes the job then, and takes no lock of another job.
func release(ctx context.Context, tx *pg.Tx, h *held, force bool) error {
	if err := links.Hold(ctx, tx, h.tenant); err != nil || force {
		return err
	}
	by, err := links.Upstreams(ctx, tx, h.ID)
	if err != nil || len(by[h.ID]) == 0 {
		return err
	}
	return links.Needed(h.Definition.Name, by[h.ID])
}

// findNeeded returns, of jobs that are to be deleted, which others trigger them, apart from those that the change is to
// delete too.
func (m *many) findNeeded(ctx context.Context, tenant int32, jobs []*held) (map[uuid.UUID][]links.Upstream, error) {
	if m.Action != DeleteMany || len(jobs) == 0 {
		return nil, nil
	}
	if err := links.Hold(ctx, m.tx, tenant); err != nil {
		return nil, err
	}
	by, err := links.Upstreams(ctx, m.tx, pg.Column(jobs, (*held).id)...)
	if err != nil || len(by) == 0 {
		return nil, err
	}
	var others []uuid.UUID
	for _, list := range by {
		others = append(others, pg.Column(list, func(u links.Upstream) uuid.UUID { return u.ID })...)
	}
	going, err := m.matching(ctx, tenant, others)
	for job, list := range by {
		by[job] = slices.DeleteFunc(list, func(u links.Upstream) bool { return slices.Contains(going, u.ID) })
	}
	return by, err
}
