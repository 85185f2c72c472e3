package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"punctual/store/aside"
	"punctual/store/audit"
	"punctual/store/pg"
)

// tryAside tries again, each by itself, what claims and finishes have set aside. What fails again stays aside, and
// keeps nothing else from being tried.
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

// RetryAside has something tried again at once that was set aside.
func (s *Store) RetryAside(ctx context.Context, kind aside.Kind, id uuid.UUID) (shown aside.SetAside, err error) {
	err = s.DB.Callers.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		item, err := aside.Retry(ctx, tx, kind, id)
		if err != nil {
			return err
		}
		if shown, err = aside.Read(ctx, tx, kind, id); err != nil {
			return err
		}
		return audit.Write(ctx, tx, item.Tenant, audit.Change{Action: audit.AsideRetry, Name: nameOf(item), Job: item.Job})
	})
	return shown, err
}

// DropAside gives up something that was set aside: it ends as far as that can be written, and is forgotten only then.
// What has ended meanwhile, or is gone, is only forgotten. What has no end of its own, such as the slot of a job, is
// changed by its job; then ErrState says how.
func (s *Store) DropAside(ctx context.Context, kind aside.Kind, id uuid.UUID) error {
	end, can := s.ends()[kind]
	if !can {
		return fmt.Errorf("%w: pause, change or delete the job in place of dropping its %s, once the cause is fixed",
			pg.ErrState, kind)
	}
	item, err := aside.Get(ctx, s.DB.Callers, kind, id)
	if err != nil {
		return err
	}
	err = end(ctx, item)
	if over := errors.Is(err, pg.ErrNotFound) || errors.Is(err, pg.ErrState); err != nil && !over {
		return fmt.Errorf("the %s cannot be given up, and stays set aside: %w", kind, err)
	}
	return s.DB.Callers.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		if err := aside.Drop(ctx, tx, kind, id); err != nil {
			return err
		}
		return audit.Write(ctx, tx, item.Tenant, audit.Change{Action: audit.AsideDrop, Name: nameOf(item), Job: item.Job})
	})
}

func nameOf(i aside.Item) string { return fmt.Sprint(i.Kind, " ", i.ID) }

// ends returns how an item of each kind is given up.
func (s *Store) ends() map[aside.Kind]func(context.Context, aside.Item) error {
	cancel := func(ctx context.Context, i aside.Item) error {
		if i.Tenant == 0 { // it could not be read when the run was set aside
			i = s.Aside.Whose(ctx, i)
		}
		if i.Tenant == 0 {
			return errors.New("the run's tenant cannot be read")
		}
		_, err := s.Runs.CancelRun(ctx, i.Tenant, i.ID)
		return err
	}
	return map[aside.Kind]func(context.Context, aside.Item) error{
		aside.Run: cancel, aside.Workflow: cancel,
		aside.Outcome:   func(ctx context.Context, i aside.Item) error { return s.Claims.Bury(ctx, i.ID) },
		aside.Event:     func(ctx context.Context, i aside.Item) error { return s.Events.End(ctx, i.ID) },
		aside.Operation: func(ctx context.Context, i aside.Item) error { return s.Letters.EndOperation(ctx, i.ID) },
		aside.Notice:    func(ctx context.Context, i aside.Item) error { return s.Notices.Drop(ctx, i.ID) },
		aside.Recipient: func(ctx context.Context, i aside.Item) error { return s.Notices.DropRecipient(ctx, i.ID) },
	}
}
