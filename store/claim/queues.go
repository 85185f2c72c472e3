package claim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// UnknownQueueError says that a job names a queue that no replica has registered.
type UnknownQueueError struct {
	Name  string
	Known []string // sorted
}

func (e *UnknownQueueError) Error() string {
	return fmt.Sprintf("queue %q: no replica serves it; the served queues are %s", e.Name, strings.Join(e.Known, ", "))
}

// Queues returns the number of every queue by its name.
func (s *Claims) Queues(ctx context.Context) (map[string]int16, error) {
	return readQueues(ctx, s.db.Reader(ctx, pg.Everybody))
}

// EnsureQueues registers new queues and returns the number of each of the given ones. Every replica does so when it
// starts, for the queues that it serves.
func (s *Claims) EnsureQueues(ctx context.Context, names []string) (map[string]int16, error) {
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

// QueueSet knows the number of each queue by its name.
type QueueSet map[string]int16

// SelectQueues selects what QueueSet.Collect reads.
const SelectQueues = `SELECT name, id FROM punctual.queues`

func readQueues(ctx context.Context, q pg.Querier) (QueueSet, error) {
	rows, err := q.Query(ctx, SelectQueues)
	if err != nil {
		return nil, fmt.Errorf("reading queues: %w", err)
	}
	queues := QueueSet{}
	if err := queues.Collect(rows); err != nil {
		return nil, fmt.Errorf("reading queues: %w", err)
	}
	return queues, nil
}

// Collect reads the rows of SelectQueues.
func (q QueueSet) Collect(rows pgx.Rows) error {
	var name string
	var id int16
	_, err := pgx.ForEachRow(rows, []any{&name, &id}, func() error {
		q[name] = id
		return nil
	})
	return err
}

// ID returns the number of a queue. The error is *UnknownQueueError if there is no such queue.
func (q QueueSet) ID(name string) (int16, error) {
	id, ok := q[name]
	if !ok {
		return 0, &UnknownQueueError{Name: name, Known: slices.Sorted(maps.Keys(q))}
	}
	return id, nil
}
