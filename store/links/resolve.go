package links

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"punctual/scheduler/jobspec"
	"punctual/store/names"
	"punctual/store/pg"
)

// Has reports whether a run of any of the definitions triggers other jobs.
func Has(definitions ...*jobspec.Definition) bool {
	return slices.ContainsFunc(definitions, func(d *jobspec.Definition) bool { return len(d.Then) > 0 })
}

// Resolve puts the ids of jobs in the place of their names. known are the ids of jobs that the same transaction is
// about to write, by name. It returns what is wrong with which definition.
func Resolve(
	ctx context.Context, q pg.Querier, tenant int32, known map[string]uuid.UUID, definitions ...*jobspec.Definition,
) (wrong map[int]error, err error) {
	if !Has(definitions...) {
		return nil, nil
	}
	var unknown []string
	for _, d := range definitions {
		for _, l := range d.Then {
			if _, is := known[l.Job]; !is {
				unknown = append(unknown, l.Job)
			}
		}
	}
	found, err := names.FindAll(ctx, q, tenant, unknown)
	if err != nil {
		return nil, err
	}
	wrong = map[int]error{}
	for i, d := range definitions {
		d.Then = slices.Clone(d.Then)
		for n := range d.Then {
			l := &d.Then[n]
			id, isID := pg.ParseID(l.Job)
			if own, is := known[l.Job]; is {
				id, isID = own, true
			} else if job, is := found[l.Job]; is {
				id, isID = job.ID, true
			}
			if !isID {
				wrong[i] = jobspec.Blame(fmt.Sprintf("then[%d].job", n), "there is no job %.80q", l.Job)
			}
			l.Job = id.String()
		}
	}
	return wrong, nil
}

// Show puts the present names of jobs in the place of their ids. The id of a job that is deleted, or whose name another
// job has by now, stays. It returns, for each definition, which of its jobs are deleted.
func Show(
	ctx context.Context, q pg.Querier, definitions ...*jobspec.Definition,
) (broken [][]uuid.UUID, err error) {
	broken = make([][]uuid.UUID, len(definitions))
	if !Has(definitions...) {
		return broken, nil
	}
	var ids []uuid.UUID
	for _, d := range definitions {
		ids = append(ids, targets(d.Then)...)
	}
	names, err := shown(ctx, q, ids)
	if err != nil {
		return nil, err
	}
	for i, d := range definitions {
		of := targets(d.Then)
		d.Then = slices.Clone(d.Then)
		for n := range d.Then {
			name, is := names[of[n]]
			if !is {
				broken[i] = append(broken[i], of[n])
				continue
			}
			d.Then[n].Job = name
		}
	}
	return broken, nil
}

// targets returns the jobs that stored links name, in their order.
func targets(links []jobspec.Link) []uuid.UUID {
	return pg.Column(links, func(l jobspec.Link) uuid.UUID {
		id, _ := pg.ParseID(l.Job)
		return id
	})
}
