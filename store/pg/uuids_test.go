package pg

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"punctual/internal/pgtest"
)

func TestUUIDsTravelBothWays(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			conn, err := pgtest.Connect(t.Context(), pgtest.DSN(t))
			must(t, err)
			defer func() { _ = conn.Close(t.Context()) }()
			registerTypes(conn)
			for _, want := range [][]uuid.UUID{nil, {}, {uuid.New()}, {uuid.New(), uuid.Nil, uuid.New()}} {
				checkUUIDs(t, conn, mode, want)
			}
		})
	}
}

func checkUUIDs(t *testing.T, conn *pgx.Conn, mode pgx.QueryExecMode, want []uuid.UUID) {
	t.Helper()
	var got []uuid.UUID
	var texts []string
	var isNull bool
	err := conn.QueryRow(t.Context(), `SELECT $1::uuid[], $1::uuid[]::text[], $1::uuid[] IS NULL`,
		mode, want).Scan(&got, &texts, &isNull)
	if err != nil {
		t.Fatalf("%v: %v", want, err)
	}
	if !slices.Equal(got, want) || isNull != (want == nil) || !cmp.Equal(texts, stringsOf(want)) {
		t.Errorf("%v came back as %v; its text is %v, it is NULL: %t", want, got, texts, isNull)
	}
	for i, id := range want {
		var back uuid.UUID
		var text string
		var none *uuid.UUID
		if err := conn.QueryRow(t.Context(), `SELECT $1::uuid, $1::uuid::text, NULL::uuid`,
			mode, id).Scan(&back, &text, &none); err != nil {
			t.Fatal(err)
		}
		if back != id || text != texts[i] || none != nil {
			t.Errorf("%s came back as %s, its text is %s, and NULL is %v", id, back, text, none)
		}
	}
}

func TestInstantsAreReadInUTC(t *testing.T) {
	t.Parallel()
	conn, err := pgtest.Connect(t.Context(), pgtest.DSN(t))
	must(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	registerTypes(conn)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeCacheDescribe} {
		var at time.Time
		var maybe *time.Time
		var list []time.Time
		must(t, conn.QueryRow(t.Context(), `SELECT now(), now(), ARRAY[now()]`, mode).Scan(&at, &maybe, &list))
		for _, got := range append(list, at, *maybe) {
			if got.Location() != time.UTC {
				t.Errorf("mode %s: %v is not in UTC", mode, got)
			}
		}
	}
}

func stringsOf(ids []uuid.UUID) []string {
	if ids == nil {
		return nil
	}
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = id.String()
	}
	return texts
}

// BenchmarkUUIDs encodes and scans the ids of a claim of 100 runs.
func BenchmarkUUIDs(b *testing.B) {
	conn, err := pgtest.Connect(b.Context(), pgtest.DSN(b))
	must(b, err)
	defer func() { _ = conn.Close(b.Context()) }()
	ids := make([]uuid.UUID, 100)
	for _, bm := range []struct {
		name  string
		ready func()
	}{
		{"as pgx does", func() {}},
		{"registered", func() { registerTypes(conn) }},
	} {
		bm.ready()
		types := conn.TypeMap()
		raw, id := ids[0][:], uuid.UUID{}
		b.Run(bm.name, func(b *testing.B) {
			var buf []byte
			b.ReportAllocs()
			for b.Loop() {
				if buf, err = types.Encode(pgtype.UUIDArrayOID, pgtype.BinaryFormatCode, ids, buf[:0]); err != nil {
					b.Fatal(err)
				}
				for range ids {
					// Not must: finding its caller takes longer than what is measured.
					if err := types.Scan(pgtype.UUIDOID, pgtype.BinaryFormatCode, raw, &id); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
