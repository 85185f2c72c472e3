package store

import (
	"encoding/base64"
	"fmt"

	"github.com/google/uuid"
)

// CursorError is a cursor that no list of this kind returned.
type CursorError struct{ Cursor string }

func (e *CursorError) Error() string {
	return fmt.Sprintf(
		"cursor %.40q: not one that this list returned; leave it out to start from the first page", e.Cursor)
}

// The list that a cursor belongs to.
const (
	jobCursor        byte = 'j'
	runCursor        byte = 'r'
	deadLetterCursor byte = 'd'
	operationCursor  byte = 'o'
	keyCursor        byte = 'k'
	auditCursor      byte = 'a'
	secretCursor     byte = 's'
)

const (
	defaultLimit = 50
	largestLimit = 500
)

// limit returns how many items the page holds.
func (p Page) limit() int {
	if p.Limit <= 0 {
		return defaultLimit
	}
	return min(p.Limit, largestLimit)
}

// mostListed is the size in bytes at which a page of large items ends, whatever its limit: 500 jobs may have bodies of
// 256 KiB each, and their page would take half a gigabyte of the memory that a replica has for everything.
const mostListed = 4 << 20

// largePage is a page of items that may be large. Its statement reads an item if the items before it have fewer than
// mostListed bytes, not counting the one right before it. So the statement reads one item more than the page holds, if
// there is one more.
type largePage struct {
	Page
	items, bytes int
}

// add counts the next item that was read. If the page was full before that item, add ends the page there.
func (p *largePage) add(bytes int) {
	if p.bytes >= mostListed {
		p.Limit = min(p.limit(), p.items)
	}
	p.items++
	p.bytes += bytes
}

// after returns the id that the page starts below; ok is false for the first page.
func (p Page) after(list byte) (id uuid.UUID, ok bool, err error) {
	if p.Cursor == "" {
		return uuid.Nil, false, nil
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(p.Cursor)
	if err != nil || len(raw) != 1+len(id) || raw[0] != list {
		return uuid.Nil, false, &CursorError{Cursor: p.Cursor}
	}
	return uuid.UUID(raw[1:]), true, nil
}

// cut turns the items read, one more than the limit if there are more, into a page and the cursor of the next page. The
// cursor is the id of the page's last item, so that items written meanwhile shift nothing.
func cut[T any](items []T, p Page, list byte, id func(T) uuid.UUID) ([]T, string) {
	if len(items) <= p.limit() {
		return items, ""
	}
	items = items[:p.limit()]
	last := id(items[len(items)-1])
	return items, base64.RawURLEncoding.EncodeToString(append([]byte{list}, last[:]...))
}
