package pg

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// uuidCodec passes a uuid.UUID as its 16 bytes. Left alone, pgx takes it for a driver.Valuer: it prints the id, fails
// to encode the text, makes an error about that, and then parses the text. Claims and finishes pass some dozen ids a
// run.
type uuidCodec struct{ pgtype.UUIDCodec }

// PlanEncode implements pgtype.Codec.
func (c uuidCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.(uuid.UUID); ok && format == pgtype.BinaryFormatCode {
		return encodeUUID{}
	}
	return c.UUIDCodec.PlanEncode(m, oid, format, value)
}

// PlanScan implements pgtype.Codec.
func (c uuidCodec) PlanScan(m *pgtype.Map, oid uint32, format int16, target any) pgtype.ScanPlan {
	if _, ok := target.(*uuid.UUID); ok && format == pgtype.BinaryFormatCode {
		return scanUUID{}
	}
	return c.UUIDCodec.PlanScan(m, oid, format, target)
}

type encodeUUID struct{}

func (encodeUUID) Encode(value any, buf []byte) ([]byte, error) {
	id := value.(uuid.UUID)
	return append(buf, id[:]...), nil
}

type scanUUID struct{}

// Scan turns a NULL into the zero UUID, as uuid.UUID's own Scan does.
func (scanUUID) Scan(src []byte, target any) error {
	if src == nil {
		return nil
	}
	if len(src) != len(uuid.UUID{}) {
		return fmt.Errorf("a uuid of %d bytes", len(src))
	}
	copy(target.(*uuid.UUID)[:], src)
	return nil
}

// uuidArrayCodec does the same for a []uuid.UUID.
type uuidArrayCodec struct{ *pgtype.ArrayCodec }

// PlanEncode implements pgtype.Codec.
func (c uuidArrayCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.([]uuid.UUID); ok && format == pgtype.BinaryFormatCode {
		return encodeUUIDs{}
	}
	return c.ArrayCodec.PlanEncode(m, oid, format, value)
}

type encodeUUIDs struct{}

// Encode writes the format that array_recv of Postgres reads: the number of dimensions, whether there are NULLs, the
// type of the elements, the length and first index of each dimension, and each element after its length.
func (encodeUUIDs) Encode(value any, buf []byte) ([]byte, error) {
	ids := value.([]uuid.UUID)
	if ids == nil {
		return nil, nil // NULL, as for any nil slice
	}
	if len(ids) == 0 {
		return appendInt32s(buf, 0, 0, pgtype.UUIDOID), nil
	}
	buf = appendInt32s(buf, 1, 0, pgtype.UUIDOID, uint32(len(ids)), 1)
	for _, id := range ids {
		buf = append(appendInt32s(buf, uint32(len(id))), id[:]...)
	}
	return buf, nil
}

func appendInt32s(buf []byte, numbers ...uint32) []byte {
	for _, n := range numbers {
		buf = binary.BigEndian.AppendUint32(buf, n)
	}
	return buf
}

// ParseID returns ref as an id. If ok is false, ref is a name: names never look like a UUID.
func ParseID(ref string) (id uuid.UUID, ok bool) {
	if len(ref) != 36 && len(ref) != 32 { // uuid.Parse knows forms that are valid names, such as urn:uuid:…
		return uuid.Nil, false
	}
	id, err := uuid.Parse(ref)
	return id, err == nil
}

// CompareIDs orders ids as Postgres does.
func CompareIDs(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }

// registerTypes tells pgx which Postgres type uuid.UUID is: how to encode it, and which type it has in the query modes
// that do not ask the server for the types of parameters (default_query_exec_mode=exec, which some poolers need). It
// also makes pgx return instants in UTC, and not in the zone of the process, and JSON as text.
func registerTypes(conn *pgx.Conn) {
	types := conn.TypeMap()
	id := &pgtype.Type{Name: "uuid", OID: pgtype.UUIDOID, Codec: uuidCodec{}}
	types.RegisterType(id)
	types.RegisterType(&pgtype.Type{
		Name: "_uuid", OID: pgtype.UUIDArrayOID, Codec: uuidArrayCodec{&pgtype.ArrayCodec{ElementType: id}},
	})
	at := &pgtype.Type{
		Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC},
	}
	types.RegisterType(at)
	types.RegisterType(&pgtype.Type{
		Name: "_timestamptz", OID: pgtype.TimestamptzArrayOID, Codec: &pgtype.ArrayCodec{ElementType: at},
	})
	for _, t := range []*pgtype.Type{{Name: "json", OID: pgtype.JSONOID}, {Name: "jsonb", OID: pgtype.JSONBOID}} {
		t.Codec = &pgtype.JSONCodec{Marshal: json.Marshal, Unmarshal: unmarshal}
		if t.OID == pgtype.JSONBOID {
			t.Codec = &pgtype.JSONBCodec{Marshal: json.Marshal, Unmarshal: unmarshal}
		}
		types.RegisterType(t)
	}
	types.RegisterDefaultPgType(uuid.UUID{}, "uuid")
	types.RegisterDefaultPgType([]uuid.UUID{}, "_uuid")
	types.RegisterDefaultPgType([]*uuid.UUID{}, "_uuid")
}

// unmarshal keeps a JSON text as it is. Postgres has texts that Go does not read, such as one of 20,000 levels: whoever
// reads rows judges each by itself, so that none makes the read of all fail.
func unmarshal(text []byte, into any) error {
	if raw, is := into.(*json.RawMessage); is {
		*raw = bytes.Clone(text)
		return nil
	}
	return json.Unmarshal(text, into) //nolint:wrapcheck // pgx says of which column
}
