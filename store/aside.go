package store

import (
	"context"
	"errors"
)

// tryAside tries again, each by itself, what claims and finishes have set aside. What fails again stays aside, and keeps
// nothing else from being tried.
func (s *Store) tryAside(ctx context.Context) (left bool, err error) {
	items, err := s.Aside.Due(ctx)
	if err != nil {
		return false, err
	}
	var failed []error
	for _, item := range items {
		failed = append(failed, s.Claims.TryAside(ctx, item))
	}
	return false, errors.Join(failed...)
}
