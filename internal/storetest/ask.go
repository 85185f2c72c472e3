package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// Value returns what a query yields.
func Value[T any](c Fixture, sql string, args ...any) (v T) {
	c.T.Helper()
	if err := c.DB.Callers.QueryRow(c.T.Context(), sql, args...).Scan(&v); err != nil {
		c.T.Fatalf("%s: %v", sql, err)
	}
	return v
}

// Column returns what a query yields, row by row.
func Column[T any](c Fixture, sql string, args ...any) []T {
	c.T.Helper()
	values, err := pg.All(c.T.Context(), c.DB.Callers, pgx.RowTo[T], sql, args...)
	if err != nil {
		c.T.Fatalf("%s: %v", sql, err)
	}
	return values
}

// Count returns the number that a query yields.
func (c Fixture) Count(sql string, args ...any) int {
	c.T.Helper()
	return Value[int](c, sql, args...)
}

// WantCount fails the test unless a query counts so many.
func (c Fixture) WantCount(want int, what, sql string, args ...any) {
	c.T.Helper()
	if n := c.Count(sql, args...); n != want {
		c.T.Errorf("%s: counted %d, want %d", what, n, want)
	}
}

// Text returns the text that a query yields, and "-" for no row or null.
func (c Fixture) Text(sql string, args ...any) string {
	c.T.Helper()
	for _, text := range Column[*string](c, sql, args...) {
		if text != nil {
			return *text
		}
	}
	return "-"
}

// Patience is how long a test waits for something that takes no time on an idle machine.
const Patience = 2 * time.Minute

// Until repeats a query until its answer is true.
func (c Fixture) Until(what, sql string, args ...any) {
	c.T.Helper()
	Until(c.T, c.DB.Callers, what, sql, args...)
}

// Until repeats a query until its answer is true: less often the longer it takes, because other tests need the
// processor.
func Until(t testing.TB, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, what, sql string, args ...any,
) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	for yes, began := false, time.Now(); ; {
		if err := db.QueryRow(ctx, sql, args...).Scan(&yes); err != nil {
			t.Fatalf("waiting for %s: %v", what, err)
		}
		if yes {
			return
		}
		select {
		case <-time.After(min(time.Millisecond+time.Since(began)/10, 50*time.Millisecond)):
		case <-ctx.Done(): // the next query says so
		}
	}
}
