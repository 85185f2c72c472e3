package seal

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// OrNull is where to scan a text for people to, which is nil for null.
func OrNull(to **string) any { return shownOrNull{to} }

type shownOrNull struct{ to **string }

func (o shownOrNull) null() error { //nolint:unparam // as scanned has it
	*o.to = nil
	return nil
}

func (o shownOrNull) take(s *Sealer, stored []byte) error {
	value := new(string)
	*o.to = value
	return (*Shown)(value).take(s, stored)
}

// Noting is where to scan Bytes or JSON to, with a note if that is not sealed, as what SQL has written.
func Noting[T interface {
	*Bytes | *JSON
	scanned
}](to T, plain *bool) any {
	return noting{to, plain}
}

type noting struct {
	scanned
	plain *bool
}

func (n noting) take(s *Sealer, stored []byte) error {
	if !bytes.HasPrefix(bytes.TrimPrefix(stored, []byte(`"`)), []byte(prefix)) {
		*n.plain = true
	}
	return n.scanned.take(s, stored)
}

// NoticeOf is where to scan a Notice to, which is for people: see Shown. It is nil for null.
func NoticeOf[T any](to **T) any { return noticeOf[T]{to} }

type noticeOf[T any] struct{ to **T }

func (n noticeOf[T]) null() error { //nolint:unparam // as scanned has it
	*n.to = nil
	return nil
}

func (n noticeOf[T]) take(s *Sealer, stored []byte) error {
	value, _, err := s.showIn(stored, quotes)
	if err != nil {
		return err
	}
	*n.to = new(T)
	return json.Unmarshal(value, *n.to) //nolint:wrapcheck // the statement that reads it says what it reads
}

// Tried is a body that may not open.
type Tried struct {
	Body []byte
	Err  error // why it does not
}

func (t *Tried) null() error {
	*t = Tried{}
	return nil
}

func (t *Tried) take(s *Sealer, stored []byte) error { //nolint:unparam // as scanned has it
	t.Body, t.Err = s.OpenBody(stored)
	return nil
}

// Rows has some columns opened of rows that are scanned to the fields of a struct: texts, bodies and documents. Where
// one cannot be opened, it says so.
func Rows[T any](scan pgx.RowToFunc[T], columns ...string) pgx.RowToFunc[T] {
	return func(row pgx.CollectableRow) (T, error) { return scan(opening{row, columns}) }
}

type opening struct {
	pgx.CollectableRow
	columns []string
}

// Scan implements pgx.CollectableRow.
func (o opening) Scan(to ...any) error {
	for i, column := range o.FieldDescriptions() {
		if i < len(to) && slices.Contains(o.columns, column.Name) {
			to[i] = opened(to[i], column.DataTypeOID)
		}
	}
	return o.CollectableRow.Scan(to...)
}

func opened(to any, oid uint32) any {
	switch to := to.(type) {
	case *string:
		return (*Shown)(to)
	case **string:
		return OrNull(to)
	case *json.RawMessage:
		if oid == pgtype.ByteaOID {
			return (*Bytes)(to)
		}
		return (*shownDocument)(to)
	}
	return to
}

// shownDocument is a document for people. A payload in it that cannot be opened is a text that says so.
type shownDocument []byte

func (d *shownDocument) null() error {
	*d = nil
	return nil
}

func (d *shownDocument) take(s *Sealer, stored []byte) error {
	value, _, err := s.showIn(stored, bodies)
	*d = append(shownDocument{}, value...)
	return err
}

// TriedDocument is a document whose payloads may not open. In the place of each that does not, there is a text for
// people, which begins with Unopened.
type TriedDocument struct {
	Text string
	Err  error // why the first does not
}

func (d *TriedDocument) null() error {
	*d = TriedDocument{}
	return nil
}

func (d *TriedDocument) take(s *Sealer, stored []byte) error {
	value, why, err := s.showIn(stored, bodies)
	*d = TriedDocument{string(value), why}
	return err
}

// showIn opens the payloads in a document for people. It also returns why the first did not open.
func (s *Sealer) showIn(stored []byte, which chosen) (value []byte, why, err error) {
	if !bytes.Contains(stored, []byte(`"`+prefix)) {
		return stored, nil, nil
	}
	value, err = inDocument(stored, which, func(value []byte) ([]byte, error) {
		opened, err := s.read(value, `"`)
		if err != nil {
			why = cmp.Or(why, err)
			return json.Marshal("(" + err.Error() + ")") //nolint:wrapcheck // a text is JSON
		}
		return opened, nil
	})
	return value, why, err
}
