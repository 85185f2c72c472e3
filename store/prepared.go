package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// prepared, given before the arguments of a statement, has it prepared under a name on a connection that keeps such
// names, where its plan is soon made once and not at each use: to plan a look through all the days of runs costs
// thirty times what the look does. It is for statements whose plan is the same whatever their arguments are and
// whatever the statistics say. Arrays go to unnest((SELECT $1)): the planner, which would count the elements of $1 at
// hand and guess ten where it makes a plan for good, then guesses ten each time, and finds that the plan for good is no
// worse.
type prepared struct{}

// keepsNames marks a connection that leads to one backend for as long as it lives.
const keepsNames = "punctual.keeps_names"

// RewriteQuery implements pgx.QueryRewriter: pgx uses a statement that is prepared under its own text.
func (prepared) RewriteQuery(ctx context.Context, conn *pgx.Conn, sql string, args []any) (string, []any, error) {
	if conn.PgConn().CustomData()[keepsNames] != nil {
		if _, err := conn.Prepare(ctx, sql, sql); err != nil {
			return "", nil, fmt.Errorf("preparing a statement: %w", err)
		}
	}
	return sql, args, nil
}

// markDirect finds out whether names are kept. A pooler that hands out backends by the transaction tells its clients
// a process id of its own making, because theirs is a different one each time.
func markDirect(ctx context.Context, conn *pgx.Conn) error {
	if conn.Config().DefaultQueryExecMode != pgx.QueryExecModeCacheDescribe {
		return nil // somebody asked for another mode, and may have had a reason
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
