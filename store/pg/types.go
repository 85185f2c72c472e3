package pg

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// registerTypes tells pgx which Postgres type uuid.UUID is: how to encode it, and which type it has in the query modes
// that do not ask the server for the types of parameters (default_query_exec_mode=exec, which some poolers need).
func registerTypes(_ context.Context, conn *pgx.Conn) error {
	types := conn.TypeMap()
	id := &pgtype.Type{Name: "uuid", OID: pgtype.UUIDOID, Codec: uuidCodec{}}
	types.RegisterType(id)
	types.RegisterType(&pgtype.Type{
		Name: "_uuid", OID: pgtype.UUIDArrayOID, Codec: uuidArrayCodec{&pgtype.ArrayCodec{ElementType: id}},
	})
	types.RegisterDefaultPgType(uuid.UUID{}, "uuid")
	types.RegisterDefaultPgType([]uuid.UUID{}, "_uuid")
	types.RegisterDefaultPgType([]*uuid.UUID{}, "_uuid")
	return nil
}
