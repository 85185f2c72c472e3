package store

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// registerTypes tells pgx what uuid.UUID is in Postgres, for the query modes that do not ask the server
// for the types of parameters (default_query_exec_mode=exec, which some poolers need).
func registerTypes(_ context.Context, conn *pgx.Conn) error {
	types := conn.TypeMap()
	types.RegisterDefaultPgType(uuid.UUID{}, "uuid")
	types.RegisterDefaultPgType([]uuid.UUID{}, "_uuid")
	types.RegisterDefaultPgType([]*uuid.UUID{}, "_uuid")
	return nil
}
