package pg

import (
	"encoding/base64"
	"errors"
	"testing"

	"github.com/google/uuid"
)

// FuzzCursor checks that a cursor is refused unless it is, to the letter, one that ended a page of the same list.
func FuzzCursor(f *testing.F) {
	id := uuid.MustParse("019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11")
	for _, list := range []byte{'j', 'r', 'd', 'o'} {
		f.Add(base64.RawURLEncoding.EncodeToString(append([]byte{list}, id[:]...)), list)
	}
	f.Add("", byte('j'))
	f.Add("ahmhahahahahahahahahahaha==", byte('j'))
	f.Add("' OR 1=1 --", byte('r'))
	f.Fuzz(func(t *testing.T, cursor string, list byte) {
		id, ok, err := Page{Cursor: cursor}.After(list)
		var bad *CursorError
		switch {
		case err != nil:
			if !errors.As(err, &bad) || ok || id != uuid.Nil || len(err.Error()) > 400 {
				t.Fatalf("%q: %s, %t, %v", cursor, id, ok, err)
			}
			return
		case !ok:
			if cursor != "" {
				t.Fatalf("%q passes for no cursor", cursor)
			}
			return
		}
		_, again := Cut([]uuid.UUID{id, id}, Page{Limit: 1}, list, func(id uuid.UUID) uuid.UUID { return id })
		if again != cursor {
			t.Fatalf("%q is read as %s, whose cursor is %q", cursor, id, again)
		}
	})
}
