package pg

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Prepared is given before the arguments of a statement. It makes the connection prepare the statement under a name, if
// the connection keeps names. There the plan is soon made once and not at each use: planning a query over all the days
// of runs costs thirty times what the query does. It is for statements whose plan is the same whatever their arguments
// and the statistics are. Pass arrays as unnest((SELECT $1)). Given $1 itself, the planner counts its elements for a
// plan made at hand, and guesses ten for a lasting plan. Given the subquery, it guesses ten each time, and so finds
// that the lasting plan is no worse.
type Prepared struct{}

// keepsNames marks a connection that leads to the same backend as long as it lives.
const keepsNames = "punctual.keeps_names"

// RewriteQuery implements pgx.QueryRewriter: pgx uses a statement that is prepared under its own text.
func (Prepared) RewriteQuery(ctx context.Context, conn *pgx.Conn, sql string, args []any) (string, []any, error) {
	if conn.PgConn().CustomData()[keepsNames] != nil {
		if _, err := conn.Prepare(ctx, sql, sql); err != nil {
			return "", nil, fmt.Errorf("preparing a statement: %w", err)
		}
	}
	return sql, args, nil
}

// markDirect finds out whether the connection keeps names. A pooler that assigns a backend to each transaction tells
// its clients a made-up process id, because the real one differs each time.
func markDirect(ctx context.Context, conn *pgx.Conn) error {
	if conn.Config().DefaultQueryExecMode != pgx.QueryExecModeCacheDescribe {
		return nil // the operator asked for another mode, and may have had a reason
	}
	var backend uint32
	if err := conn.QueryRow(ctx, `SELECT pg_backend_pid()`, pgx.QueryExecModeSimpleProtocol).Scan(&backend); err != nil {
		return fmt.Errorf("asking for the backend's process id: %w", err)
	}
	if backend == conn.PgConn().PID() {
		conn.PgConn().CustomData()[keepsNames] = true
	}
	return nil
}
