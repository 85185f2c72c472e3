package claim

import (
	"context"
	"fmt"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/definitions"
	"punctual/store/pg"
)

// loadTokenKey reads the key of run tokens before the first claim of an asynchronous job or of a step commits.
func (s *Claims) loadTokenKey(ctx context.Context, q pg.Querier, jobs map[definitions.Version]*domain.Job) error {
	if s.tokenKey.Load() != nil {
		return nil
	}
	for key, job := range jobs {
		if job.Completion == jobspec.CompleteAsync || key.Step != "" {
			_, err := s.ReadTokenKey(ctx, q)
			return err
		}
	}
	return nil
}

// ReadTokenKey returns the key that run tokens are made with, and keeps it.
func (s *Claims) ReadTokenKey(ctx context.Context, q pg.Querier) ([]byte, error) {
	if key := s.tokenKey.Load(); key != nil {
		return *key, nil
	}
	var key []byte
	if err := q.QueryRow(ctx, `SELECT key FROM punctual.run_token_key`).Scan(&key); err != nil {
		return nil, fmt.Errorf("reading the key of run tokens: %w", err)
	}
	s.tokenKey.Store(&key)
	return key, nil
}
