package store

import (
	"context"
	"errors"

	"punctual/store/aside"
)

// tryAside tries again what was set aside and is due for it. An item that fails again stays aside, and keeps no other
// from being tried.
func (s *Store) tryAside(ctx context.Context) (left bool, err error) {
	items, err := s.Aside.Due(ctx)
	if err != nil {
		return false, err
	}
	var failed []error
	for _, item := range items {
		if try := s.retries()[item.Kind]; try != nil {
			failed = append(failed, try(ctx, item))
		}
	}
	return false, errors.Join(failed...)
}

// retries returns how an item of each kind is tried again by itself.
func (s *Store) retries() map[aside.Kind]func(context.Context, aside.Item) error {
	return map[aside.Kind]func(context.Context, aside.Item) error{
		aside.Slot: s.Claims.TryAside, aside.Run: s.Claims.TryAside, aside.Outcome: s.Claims.TryAside,
		aside.Workflow: s.Claims.TryAside,
	}
}
