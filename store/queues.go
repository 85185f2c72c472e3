package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// TenantID returns the id of a tenant by its name. The error is ErrNotFound if there is none.
func (s *Store) TenantID(ctx context.Context, name string) (int32, error) {
	var id int32
	err := s.reader(ctx, pg.Everybody).QueryRow(ctx, `
		SELECT id FROM punctual.tenants WHERE name = $1 AND deleted_at IS NULL`, name).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, fmt.Errorf("tenant %q: %w", name, ErrNotFound)
	}
	if err != nil {
		return 0, fmt.Errorf("reading tenant %q: %w", name, err)
	}
	return id, nil
}

// UnknownQueueError says that a job names a queue that no replica has registered.
type UnknownQueueError struct {
	Name  string
	Known []string // sorted
}

func (e *UnknownQueueError) Error() string {
	return fmt.Sprintf("queue %q: no replica serves it; the served queues are %s", e.Name, strings.Join(e.Known, ", "))
}

// Queues returns the number of every queue by its name.
func (s *Store) Queues(ctx context.Context) (map[string]int16, error) {
	return readQueues(ctx, s.reader(ctx, pg.Everybody))
}

// EnsureQueues registers new queues and returns the number of each of the given ones. Every replica does so when it
// starts, for the queues that it serves.
func (s *Store) EnsureQueues(ctx context.Context, names []string) (map[string]int16, error) {
	names = slices.Sorted(slices.Values(names))
	// ON CONFLICT uses up a number each time, and there are only 8,000. So the statement tries only new names.
	_, err := s.db.Conns(ctx).Exec(ctx, `
		INSERT INTO punctual.queues (name)
		SELECT w.name FROM unnest($1::text[]) w(name)
		WHERE NOT EXISTS (SELECT FROM punctual.queues q WHERE q.name = w.name)
		ON CONFLICT DO NOTHING`, names)
	if err != nil {
		return nil, fmt.Errorf("registering queues: %w", err)
	}
	all, err := readQueues(ctx, s.db.Conns(ctx))
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(all, func(name string, _ int16) bool { return !slices.Contains(names, name) })
	return all, nil
}

// queueSet knows the number of each queue by its name.
type queueSet map[string]int16

const selectQueues = `SELECT name, id FROM punctual.queues`

func readQueues(ctx context.Context, q pg.Querier) (queueSet, error) {
	rows, err := q.Query(ctx, selectQueues)
	if err != nil {
		return nil, fmt.Errorf("reading queues: %w", err)
	}
	queues := queueSet{}
	if err := queues.collect(rows); err != nil {
		return nil, fmt.Errorf("reading queues: %w", err)
	}
	return queues, nil
}

func (q queueSet) collect(rows pgx.Rows) error {
	var name string
	var id int16
	_, err := pgx.ForEachRow(rows, []any{&name, &id}, func() error {
		q[name] = id
		return nil
	})
	return err
}

func (q queueSet) id(name string) (int16, error) {
	id, ok := q[name]
	if !ok {
		return 0, &UnknownQueueError{Name: name, Known: slices.Sorted(maps.Keys(q))}
	}
	return id, nil
}
