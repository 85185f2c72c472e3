package jobs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/jobspec"
	"punctual/store/claim"
	"punctual/store/links"
	"punctual/store/names"
	"punctual/store/pg"
	"punctual/store/secrets"
)

// CreateJobs writes up to 1,000 jobs in one transaction and a few statements, all or nothing: a *BatchError says by
// index what is wrong with which job. A name is taken if an active or paused job has it. Then ConflictError refuses the
// batch, ConflictSkip leaves the existing job as it is, and ConflictReplace replaces it as PutJob does. For
// ConflictSkip a completed job with the same instant of an at exists too, so that a batch that is sent again does not
// fire again what it has fired. A name may appear only once in a batch.
func (w Writer) CreateJobs(ctx context.Context, jobs []NewJob, on OnConflict) ([]BatchItem, error) {
	return pg.Do(ctx, w.Writes, func(tx *pg.Tx) ([]BatchItem, error) {
		b := batchWrite{
			store: w.store, tx: tx, tenant: w.Tenant, jobs: jobs, on: on,
			results: make([]BatchItem, len(jobs)), errs: map[int]error{},
		}
		return b.run(ctx)
	})
}

// batchWrite is one CreateJobs on its way through the transaction.
type batchWrite struct {
	store   *Jobs
	tx      *pg.Tx
	tenant  int32
	jobs    []NewJob
	on      OnConflict
	results []BatchItem
	errs    map[int]error
	secrets secrets.Facts
	links   []links.Change // of the jobs that are replaced
}

func (b *batchWrite) run(ctx context.Context) ([]BatchItem, error) {
	f, err := readFacts(ctx, b.tx, &pgx.Batch{}, b.tenant)
	if err != nil {
		return nil, fmt.Errorf("reading queues: %w", err)
	}
	definitions := pg.Column(b.jobs, func(job NewJob) jobspec.Definition { return job.Definition })
	if f.secrets, err = b.store.secrets.ReadFacts(ctx, b.tx, b.tenant, definitions...); err != nil {
		return nil, err
	}
	b.secrets = f.secrets
	if err := b.resolveLinks(ctx); err != nil {
		return nil, err
	}
	left := b.prepare(ctx, f)
	// A name that another transaction takes between the look and the insert is looked up again.
	for round := range rounds {
		if len(b.errs) > 0 {
			return nil, &BatchError{Errors: b.errs}
		}
		if len(left) == 0 {
			if err := b.writeLinks(ctx); err == nil || len(b.errs) == 0 {
				return b.results, err
			}
			continue
		}
		var found map[string]names.Job
		if round > 0 || !b.hopeful(f) {
			if found, err = names.FindAll(ctx, b.tx, b.tenant, jobNames(left)); err != nil {
				return nil, err
			}
		}
		var again []*fresh
		if left, again, err = b.resolve(ctx, left, found); err != nil {
			return nil, err
		}
		if len(b.errs) > 0 {
			continue
		}
		var due bool
		if left, due, err = b.store.insertMany(ctx, b.tx, b.tenant, left, f); err != nil {
			return nil, err
		}
		if due {
			b.tx.Wake()
		}
		left = append(left, again...)
	}
	for _, n := range left {
		b.errs[n.index] = ErrNameTaken
	}
	return nil, &BatchError{Errors: b.errs}
}

// hopeful reports whether the jobs are written before their names are looked up. If jobs that exist are not to be
// touched, a name matters only if it turns out to be taken. But a job that has its name is a better reason to refuse a
// batch than the tenant's limit, which would come first.
func (b *batchWrite) hopeful(f facts) bool { return b.on == ConflictError && f.maxJobs == 0 }

// prepare makes the rows of every job as if the job were new.
func (b *batchWrite) prepare(ctx context.Context, f facts) []*fresh {
	all := make([]*fresh, 0, len(b.jobs))
	first := make(map[string]int, len(b.jobs))
	for i, job := range b.jobs {
		name := job.Definition.Name
		if j, twice := first[name]; twice {
			b.errs[i] = fmt.Errorf("job %q is in the batch already, at index %d: %w", name, j, ErrNameTaken)
			continue
		}
		first[name] = i
		n, err := b.store.prepare(ctx, b.tenant, job, f)
		if err != nil {
			b.errs[i] = err
			continue
		}
		n.index = i
		b.results[i] = BatchItem{ID: n.ID, Name: name, Result: BatchCreated} // unless its name is taken
		all = append(all, n)
	}
	return all
}

// resolve decides about the jobs whose name an existing job has. It returns the jobs to insert, and the jobs whose name
// changed hands meanwhile.
func (b *batchWrite) resolve(
	ctx context.Context, jobs []*fresh, found map[string]names.Job,
) (insert, again []*fresh, err error) {
	replace := map[uuid.UUID]*fresh{}
	for _, n := range jobs {
		old, ok := found[n.Definition.Name]
		switch {
		case !ok:
			insert = append(insert, n)
		case b.on == ConflictReplace:
			replace[old.ID] = n
		case b.on == ConflictSkip && (old.State.HoldsName() || fired(old, n.Definition)):
			b.results[n.index].ID, b.results[n.index].Result = old.ID, BatchSkipped
		case old.State.HoldsName():
			b.errs[n.index] = fmt.Errorf("job %q: %w", n.Definition.Name, ErrNameTaken)
		default:
			insert = append(insert, n)
		}
	}
	if len(replace) == 0 || len(b.errs) > 0 {
		return insert, nil, nil
	}
	again, err = b.replace(ctx, replace)
	return insert, again, err
}

// fired reports whether the completed job is the same one-shot as the new one.
func fired(old names.Job, d jobspec.Definition) bool {
	return d.Schedule.Kind() == jobspec.KindAt && jobspec.SameSchedule(old.Schedule, d.Schedule)
}

// replace rewrites the jobs that exist, and returns those that exist no more.
func (b *batchWrite) replace(ctx context.Context, replace map[uuid.UUID]*fresh) (again []*fresh, err error) {
	ids := slices.Collect(maps.Keys(replace))
	jobs, f, err := b.store.hold(ctx, b.tx, b.tenant, ids, claim.Wait)
	if err != nil {
		return nil, err
	}
	f.secrets = b.secrets
	var writes saves
	for _, h := range jobs {
		n := replace[h.ID]
		if h.Definition.Name != n.Definition.Name {
			continue
		}
		delete(replace, h.ID)
		b.results[n.index].ID, b.results[n.index].Result = h.ID, BatchUnchanged
		change, err := b.store.rewrite(ctx, b.tx, h, b.jobs[n.index], f, true)
		if err != nil {
			return nil, err
		}
		if change != nil {
			b.links = append(b.links, *change)
			b.results[n.index].Result = BatchReplaced
			if err := h.save(&writes, f.now, ""); err != nil {
				return nil, err
			}
		}
	}
	again = slices.SortedFunc(maps.Values(replace), compareNames)
	return again, writes.send(ctx, b.tx)
}

// compareNames orders new jobs by their names.
func compareNames(a, b *fresh) int { return strings.Compare(a.Definition.Name, b.Definition.Name) }

func jobNames(jobs []*fresh) []string {
	return pg.Column(jobs, func(n *fresh) string { return n.Definition.Name })
}
