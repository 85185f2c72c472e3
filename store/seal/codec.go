package seal

import (
	"fmt"
	"reflect"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Register has a connection seal and open the types of this package, in columns of text, bytes and JSON.
func (s *Sealer) Register(conn *pgx.Conn) {
	types := conn.TypeMap()
	for array, oid := range map[uint32]uint32{
		pgtype.TextArrayOID: pgtype.TextOID, pgtype.ByteaArrayOID: pgtype.ByteaOID,
		pgtype.JSONArrayOID: pgtype.JSONOID, pgtype.JSONBArrayOID: pgtype.JSONBOID,
	} {
		of, _ := types.TypeForOID(oid)
		one := &pgtype.Type{Name: of.Name, OID: oid, Codec: codec{of.Codec, s}}
		types.RegisterType(one)
		types.RegisterType(&pgtype.Type{
			Name: "_" + of.Name, OID: array, Codec: &pgtype.ArrayCodec{ElementType: one},
		})
	}
	for kind, values := range map[string][]any{
		"text": {
			Text(""), Shown(""), JSON{}, Document(""), Notice{}, Quoting{}, new(Text), new(JSON), new(Document), new(Quoting),
		},
		"bytea": {Bytes{}},
	} {
		for _, v := range values {
			types.RegisterDefaultPgType(v, kind)
			types.RegisterDefaultPgType(reflect.Zero(reflect.SliceOf(reflect.TypeOf(v))).Interface(), "_"+kind)
		}
	}
}

// codec seals and opens the types of this package, and leaves all others to the codec of their column.
type codec struct {
	pgtype.Codec
	sealer *Sealer
}

// PlanEncode implements pgtype.Codec.
func (c codec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := payloadOf(value); ok {
		if next := c.Codec.PlanEncode(m, oid, format, []byte(nil)); next != nil {
			return encoding{c.sealer, next}
		}
	}
	return c.Codec.PlanEncode(m, oid, format, value)
}

// payloadOf returns a payload, or the one that a pointer points to; nil: it points to none.
func payloadOf(value any) (payload, bool) {
	switch v := value.(type) {
	case *Text:
		return deref(v), true
	case *Quoting:
		return deref(v), true
	case *JSON:
		return deref(v), true
	case *Document:
		return deref(v), true
	}
	p, ok := value.(payload)
	return p, ok
}

func deref[T payload](p *T) payload {
	if p == nil {
		return nil
	}
	return *p
}

type encoding struct {
	sealer *Sealer
	next   pgtype.EncodePlan
}

// Encode implements pgtype.EncodePlan.
func (e encoding) Encode(value any, buf []byte) ([]byte, error) {
	p, _ := payloadOf(value)
	if p == nil {
		return nil, nil
	}
	stored, err := p.stored(e.sealer)
	if err != nil || stored == nil {
		return nil, err
	}
	return e.next.Encode(stored, buf)
}

// PlanScan implements pgtype.Codec.
func (c codec) PlanScan(m *pgtype.Map, oid uint32, format int16, target any) pgtype.ScanPlan {
	if _, ok := target.(scanned); ok {
		if next := m.PlanScan(oid, format, new([]byte)); next != nil {
			return scanning{c.sealer, next}
		}
	}
	return c.Codec.PlanScan(m, oid, format, target)
}

type scanning struct {
	sealer *Sealer
	next   pgtype.ScanPlan
}

// Scan implements pgtype.ScanPlan.
func (p scanning) Scan(src []byte, target any) error {
	to := target.(scanned)
	if src == nil {
		return to.null()
	}
	var stored []byte
	if err := p.next.Scan(src, &stored); err != nil {
		return fmt.Errorf("reading a payload: %w", err)
	}
	return to.take(p.sealer, stored)
}
