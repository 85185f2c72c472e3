// Package definitions compiles the definitions of jobs for this deployment, and keeps what it has compiled. A version
// of a definition never changes, so what is kept is never outdated while the database stays the same one.
package definitions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/cache"
	"punctual/store/pg"
	"punctual/store/seal"
)

// Bounds of a replica's compiled definitions. Most are small, but a definition may have a body of 256 KiB.
const (
	mostCompiled  = 20_000
	compiledBytes = 64 << 20
)

// compiledSize estimates the size of a compiled definition in bytes from the length of its text. The compiled
// definition holds its body twice.
func compiledSize(text int) int { return 2<<10 + 2*text }

// RetryIn is how long work on a job waits for its next try when this binary cannot compile the job's definition.
const RetryIn = time.Minute

// Version names one immutable definition, or a step of one.
type Version struct {
	Job     uuid.UUID
	Version int32
	Step    string // empty: the whole
}

// whole returns the definition that v is a step of, or v.
func (v Version) whole() Version { return Version{Job: v.Job, Version: v.Version} }

// Definitions compiles definitions. Safe for concurrent use.
type Definitions struct {
	jitter    time.Duration // of cron slots a minute or more apart whose definition sets none
	retention time.Duration // how long runs are kept
	sealer    *seal.Sealer  // opens the bodies in definitions
	compiled  *cache.Cache[Version, *domain.Job]
}

// New returns Definitions for a deployment with a default jitter, which keeps runs for a time.
func New(jitter, retention time.Duration, sealer *seal.Sealer) *Definitions {
	return &Definitions{
		jitter: jitter, retention: retention, sealer: sealer,
		compiled: cache.New[Version, *domain.Job](mostCompiled, compiledBytes),
	}
}

// Found are compiled definitions. A definition that this binary cannot compile is in Broken: its job is reported and
// put off, and the other jobs of its batch go on.
type Found struct {
	Jobs     map[Version]*domain.Job
	Broken   map[Version]error // why this binary cannot compile the others
	Compiled int               // how many were not kept from before
}

// NewFound returns a Found without definitions.
func NewFound() *Found { return &Found{Jobs: map[Version]*domain.Job{}, Broken: map[Version]error{}} }

// Job returns the compiled definition of a version, or of its step; nil: this binary cannot compile it.
func (f Found) Job(key Version) *domain.Job {
	if job := f.Jobs[key.whole()]; job != nil {
		return job.Step(key.Step)
	}
	return nil
}

// Why returns why there is no compiled definition of a version.
func (f Found) Why(key Version) error { return cmp.Or(f.Broken[key.whole()], errNoDefinition) }

// Take adds a definition whose text was read already.
func (d *Definitions) Take(f *Found, key Version, tenant int32, text []byte) {
	if job, ok := d.compiled.Get(key); ok {
		f.Jobs[key] = job
		return
	}
	d.compile(f, key, tenant, text)
}

// Queue adds the definitions of versions, each with its tenant. It queues a statement for those that are neither there
// nor kept; they are there once the batch is read.
func (d *Definitions) Queue(b *pgx.Batch, f *Found, versions iter.Seq2[Version, int32]) {
	missing := map[Version]int32{}
	for key, tenant := range versions {
		key = key.whole()
		if f.Jobs[key] != nil || f.Broken[key] != nil {
			continue
		}
		if job, ok := d.compiled.Get(key); ok {
			f.Jobs[key] = job
			continue
		}
		missing[key] = tenant
	}
	if len(missing) > 0 {
		d.read(b, missing, f)
	}
}

// compile adds a definition that is not kept from before, and keeps it unless its job runs once, with one request.
func (d *Definitions) compile(f *Found, key Version, tenant int32, text []byte) {
	f.Compiled++
	job, err := d.CompileText(key, tenant, text)
	if err != nil {
		f.Broken[key] = err
		return
	}
	f.Jobs[key] = job
	if !job.Schedule.Kind().OneShot() || job.IsWorkflow() {
		d.compiled.Add(key, job, compiledSize(len(text))+len(job.StepJobs)<<11)
	}
}

func (d *Definitions) read(b *pgx.Batch, missing map[Version]int32, f *Found) {
	keys := slices.Collect(maps.Keys(missing))
	b.Queue(`
		SELECT v.job_id, v.version, v.definition
		FROM unnest((SELECT $1::uuid[]), (SELECT $2::int[])) AS u(job_id, version)
		JOIN punctual.job_versions v ON v.job_id = u.job_id AND v.version = u.version`, pg.Prepared{},
		pg.Column(keys, func(key Version) uuid.UUID { return key.Job }),
		pg.Column(keys, func(key Version) int32 { return key.Version })).
		Query(func(rows pgx.Rows) error {
			err := pg.Each3(rows, func(job uuid.UUID, version int32, raw []byte) {
				key := Version{Job: job, Version: version}
				d.compile(f, key, missing[key], raw)
			})
			for key := range missing {
				if f.Jobs[key] == nil && f.Broken[key] == nil {
					f.Broken[key] = errNoDefinition
				}
			}
			return err
		})
}

var errNoDefinition = errors.New("punctual.job_versions has no such version")

// Read returns the definitions of versions, each with its tenant, in at most one round trip.
func (d *Definitions) Read(ctx context.Context, q pg.Batcher, versions iter.Seq2[Version, int32]) (Found, error) {
	var b pgx.Batch
	f := NewFound()
	d.Queue(&b, f, versions)
	if b.Len() == 0 {
		return *f, nil
	}
	err := q.SendBatch(ctx, &b).Close()
	return *f, pg.Wrap("reading definitions of jobs", err)
}

// Of is the sequence of the versions that rows name. It leaves out rows that name none, with version 0.
func Of[T any](rows []T, version func(T) (Version, int32)) iter.Seq2[Version, int32] {
	return func(yield func(Version, int32) bool) {
		for _, r := range rows {
			if key, tenant := version(r); key.Version > 0 && !yield(key, tenant) {
				return
			}
		}
	}
}

// One is a sequence of one version.
func One(key Version, tenant int32) iter.Seq2[Version, int32] {
	return func(yield func(Version, int32) bool) { yield(key, tenant) }
}

// Forget forgets all compiled definitions: the database has become another one, in a failover or a restore.
func (d *Definitions) Forget() { d.compiled.Purge() }

// Compiled returns a definition that is compiled already.
func (d *Definitions) Compiled(key Version) (*domain.Job, bool) { return d.compiled.Get(key) }

// unmarshal reads the text of a definition, or of a part of one. A field that this binary does not know may change the
// request: some replica with a newer binary wrote it and can send it. A body may repeat names.
func unmarshal(text []byte, into any) error {
	return json.Unmarshal(text, into, //nolint:wrapcheck // the caller says of which job
		json.RejectUnknownMembers(true), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// CompileText compiles the text of a definition, as it is stored, and does not keep the result.
func (d *Definitions) CompileText(key Version, tenant int32, text []byte) (*domain.Job, error) {
	var def jobspec.Definition
	text, err := d.sealer.OpenDocument(text)
	if err != nil {
		return nil, fmt.Errorf("reading the definition of job %s version %d: %w", key.Job, key.Version, err)
	}
	if err := unmarshal(text, &def); err != nil {
		return nil, fmt.Errorf("reading the definition of job %s version %d: %w", key.Job, key.Version, err)
	}
	return d.Compile(key, tenant, def)
}

// Compile compiles a definition and does not keep the result. A window that was written when runs were kept for longer
// is cut to the retention: an older slot can only become a skip. One-shots are never dropped, however old.
func (d *Definitions) Compile(key Version, tenant int32, def jobspec.Definition) (*domain.Job, error) {
	job, err := domain.Compile(key.Job, tenant, key.Version, def, d.jitter)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the job
	}
	job.Kept = d.retention
	if job.Schedule.Kind().Recurring() && job.Missed.Window.Value() > d.retention {
		job.Missed.Window = jobspec.DurationOf(d.retention)
	}
	return job, err
}

// Timetable compiles only the schedule of a definition, from its text, and its jitter; an empty jitter is an absent
// one. The timetable is no single job's: it does not know where in the jitter a job's slots are due.
func (d *Definitions) Timetable(schedule, jitter []byte) (*jobspec.Timetable, error) {
	var def jobspec.Definition
	if err := unmarshal(schedule, &def.Schedule); err != nil {
		return nil, fmt.Errorf("reading a schedule: %w", err)
	}
	if len(jitter) > 0 {
		_ = def.Jitter.UnmarshalText(jitter) // never fails
	}
	return jobspec.NewTimetable(uuid.Nil, def.WithDefaults(), d.jitter)
}
