package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler"
	"punctual/store/pg"
)

// jobVersion names one immutable definition.
type jobVersion struct {
	id      uuid.UUID
	version int32
}

// queueDefinitions queues the read of the definitions that are not compiled yet. When the batch is read, it puts each
// compiled definition into found and into the cache. It puts a definition that this binary cannot compile into broken:
// its job is reported and put off, and the other jobs of its batch go on.
func (s *Store) queueDefinitions(
	b *pgx.Batch, missing map[jobVersion]int32, found map[jobVersion]*scheduler.Job, broken map[jobVersion]error,
) {
	ids := make([]uuid.UUID, 0, len(missing))
	versions := make([]int32, 0, len(missing))
	for key := range missing {
		ids = append(ids, key.id)
		versions = append(versions, key.version)
	}
	b.Queue(`
		SELECT v.job_id, v.version, v.definition
		FROM unnest((SELECT $1::uuid[]), (SELECT $2::int[])) AS u(job_id, version)
		JOIN punctual.job_versions v ON v.job_id = u.job_id AND v.version = u.version`, pg.Prepared{}, ids, versions).
		Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var key jobVersion
				var raw []byte
				if err := rows.Scan(&key.id, &key.version, &raw); err != nil {
					return err
				}
				job, err := s.compile(key, missing[key], raw)
				if err != nil {
					broken[key] = err
					continue
				}
				found[key] = job
			}
			for key := range missing {
				if found[key] == nil && broken[key] == nil {
					broken[key] = errNoDefinition
				}
			}
			return rows.Err()
		})
}

var errNoDefinition = errors.New("punctual.job_versions has no such version")

func (s *Store) compile(key jobVersion, tenant int32, raw []byte) (*scheduler.Job, error) {
	job, err := s.compileOnce(key, tenant, raw)
	if err != nil {
		return nil, err
	}
	s.jobs.add(key, job, compiledSize(len(raw)))
	return job, nil
}

// compileOnce compiles a definition and does not cache it.
func (s *Store) compileOnce(key jobVersion, tenant int32, raw []byte) (*scheduler.Job, error) {
	var d scheduler.Definition
	// A field that this binary does not know may change the request. Some replica with a newer binary wrote it and can
	// send it.
	strict := json.NewDecoder(bytes.NewReader(raw))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&d); err != nil {
		return nil, fmt.Errorf("reading the definition of job %s version %d: %w", key.id, key.version, err)
	}
	return s.compileJob(key.id, tenant, key.version, d)
}

// compiled returns a compiled definition. cannot is the reason why this binary cannot compile it.
func (u *unit) compiled(ctx context.Context, tenant int32, key jobVersion) (job *scheduler.Job, cannot, err error) {
	if job, ok := u.store.jobs.get(key); ok {
		return job, nil, nil
	}
	found, broken := map[jobVersion]*scheduler.Job{}, map[jobVersion]error{}
	var b pgx.Batch
	u.store.queueDefinitions(&b, map[jobVersion]int32{key: tenant}, found, broken)
	if err := u.SendBatch(ctx, &b).Close(); err != nil {
		return nil, nil, fmt.Errorf("reading the definition of job %s: %w", key.id, err)
	}
	return found[key], broken[key], nil
}
