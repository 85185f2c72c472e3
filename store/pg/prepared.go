package pg

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"punctual/store/session"
)

// Prepared is given before the arguments of a statement. It makes the connection prepare the statement under a name, if
// the connection keeps names. There the plan is soon made once and not at each use: planning a query over all the days
// of runs costs thirty times what the query does. It is for statements whose plan is the same whatever their arguments
// and the statistics are. Pass arrays as unnest((SELECT $1)). Given $1 itself, the planner counts its elements for a
// plan made at hand, and guesses ten for a lasting plan. Given the subquery, it guesses ten each time, and so finds
// that the lasting plan is no worse.
type Prepared struct{}

// With returns the arguments of a statement that is Prepared.
func (p Prepared) With(args ...any) []any { return append([]any{p}, args...) }

// RewriteQuery implements pgx.QueryRewriter: pgx uses a statement that is prepared under its own text.
func (Prepared) RewriteQuery(ctx context.Context, conn *pgx.Conn, sql string, args []any) (string, []any, error) {
	if keepsNames(conn) {
		if _, err := conn.Prepare(ctx, sql, sql); err != nil {
			return "", nil, fmt.Errorf("preparing a statement: %w", err)
		}
	}
	return sql, args, nil
}

// keepsNames reports whether a connection keeps the names of prepared statements. An operator who asked for another
// mode of queries may have had a reason.
func keepsNames(conn *pgx.Conn) bool {
	return session.Direct(conn) && conn.Config().DefaultQueryExecMode == pgx.QueryExecModeCacheDescribe
}
