package pg

import (
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// What a connection leads to may change while it lives. After a failover of some hosted databases and proxies, sockets
// to the former primary stay open, and only new connections lead to the new one. So once a server says that it takes
// no writes, or that it is going, the connections of all pools are made anew: idle ones are closed now, those in use
// when they are returned. What a server does not say ends with the connection's life.
const (
	lifetime       = 5 * time.Minute
	lifetimeJitter = time.Minute

	// renewEvery bounds how often all connections are made anew: a database that stays read-only costs a few
	// reconnects, and no storm of them.
	renewEvery = 5 * time.Second
)

// leaving are the SQLSTATEs by which a server says that it is no longer the one to be connected to.
var leaving = map[string]bool{
	"25006": true, // read_only_sql_transaction: among others, all writes to a standby
	"57P01": true, // admin_shutdown
	"57P02": true, // crash_shutdown
	"57P03": true, // cannot_connect_now
}

// renewal makes connections anew. Safe for concurrent use.
type renewal struct {
	mu    sync.Mutex
	pools []*pgxpool.Pool
	last  time.Time
}

func (r *renewal) add(pool *pgxpool.Pool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pools = append(r.pools, pool)
}

// heed is told of each error of a server, and reports whether the connection that brought it may be used further.
func (r *renewal) heed(err *pgconn.PgError) bool {
	if leaving[err.Code] {
		r.renew()
	}
	// A prepared statement is gone, as after DISCARD, or no longer fits a table that was migrated.
	return err.Code != "26000" && (err.Code != "0A000" || err.Routine != "RevalidateCachedQuery")
}

func (r *renewal) renew() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.last) < renewEvery {
		return
	}
	r.last = time.Now()
	for _, pool := range r.pools {
		pool.Reset()
	}
}
