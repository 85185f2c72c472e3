package pg

import (
	"context"
	"encoding/base64"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// CursorError is a cursor that no list of this kind returned.
type CursorError struct {
	Cursor string
	Param  string // the parameter that has it; empty: cursor
}

func (e *CursorError) Error() string {
	return fmt.Sprintf(
		"cursor %.40q was not returned by this list; leave it out to start from the first page", e.Cursor)
}

// Page selects a part of a list, newest first.
type Page struct {
	Limit  int    // 1 to 500
	Cursor string // as returned with the page before; empty for the first page
}

const (
	defaultLimit = 50
	largestLimit = 500
)

// Size returns how many items the page holds.
func (p Page) Size() int {
	if p.Limit <= 0 {
		return defaultLimit
	}
	return min(p.Limit, largestLimit)
}

// MostListed is the size in bytes at which a page of large items ends, whatever its limit: 500 jobs may have bodies of
// 256 KiB each, and their page would take half a gigabyte of the memory that a replica has for everything.
const MostListed = 4 << 20

// LargePage is a page of items that may be large. Its statement reads an item if the items before it have fewer than
// MostListed bytes, not counting the one right before it. So the statement reads one item more than the page holds, if
// there is one more.
type LargePage struct {
	Page
	items, bytes int
}

// Add counts the next item that was read. If the page was full before that item, Add ends the page there.
func (p *LargePage) Add(bytes int) {
	if p.bytes >= MostListed {
		p.Limit = min(p.Size(), p.items)
	}
	p.items++
	p.bytes += bytes
}

// After returns the id that the page starts below; ok is false for the first page.
func (p Page) After(list byte) (id uuid.UUID, ok bool, err error) {
	if p.Cursor == "" {
		return uuid.Nil, false, nil
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(p.Cursor)
	if err != nil || len(raw) != 1+len(id) || raw[0] != list {
		return uuid.Nil, false, &CursorError{Cursor: p.Cursor}
	}
	return uuid.UUID(raw[1:]), true, nil
}

// Cut turns the items read, one more than the limit if there are more, into a page and the cursor of the next page. The
// cursor is the id of the page's last item, so that items written meanwhile shift nothing.
func Cut[T any](items []T, p Page, list byte, id func(T) uuid.UUID) ([]T, string) {
	if len(items) <= p.Size() {
		return items, ""
	}
	items = items[:p.Size()]
	return items, Cursor(list, id(items[len(items)-1]))
}

// Listed is what a list consists of: items that are sorted by their ids, the newest first.
type Listed[T any] struct {
	What    string // for errors
	Letter  byte   // of the list, in its cursors
	ID      string // the SQL of an item's id
	Soonest bool   // in the order of the ids, in place of the newest first
	Of      func(T) uuid.UUID
	Scan    pgx.RowToFunc[T]
}

// Page returns a page of the list, and the cursor of the next page, which is empty on the last one. The statement is
// one without its conditions.
func (l Listed[T]) Page(ctx context.Context, q Querier, p Page, statement string, c Conditions) ([]T, string, error) {
	further, order := ` < ?`, ` DESC`
	if l.Soonest {
		further, order = ` > ?`, ``
	}
	if err := c.Page(p, l.Letter, l.ID+further); err != nil {
		return nil, "", err
	}
	statement += c.Where() + fmt.Sprintf(` ORDER BY %s%s LIMIT %d`, l.ID, order, p.Size()+1)
	items, err := All(ctx, q, l.Scan, statement, c.Args...)
	if err != nil {
		return nil, "", fmt.Errorf("listing %s: %w", l.What, err)
	}
	items, next := Cut(items, p, l.Letter, l.Of)
	return items, next, nil
}

// Cursor returns the cursor of the page that follows an item of a list.
func Cursor(list byte, last uuid.UUID) string {
	return base64.RawURLEncoding.EncodeToString(append([]byte{list}, last[:]...))
}

// DepthCap is as far as work in queues is counted, so that a count takes no longer for a backlog of millions than for a
// small one. MostInFlight is how many runs in flight are searched for those of one tenant.
const (
	DepthCap     = 10_000
	MostInFlight = 5 * DepthCap
)
