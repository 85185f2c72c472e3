package store

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// idling is how long Postgres waits for the next statement of a claim, before it ends the transaction and other replicas
// can have its rows. Between two statements lies a round trip, which takes milliseconds: whoever is silent for a second has
// stopped, or its network has. Where a round trip takes longer than that, Postgres ends a claim that is well; then the next
// one may take twice as long, and after many that went well half as long again. Safe for concurrent use.
type idling struct {
	doublings atomic.Int32
	well      atomic.Int32 // claims in a row that went well
}

const (
	leastIdling   = time.Second
	mostDoublings = 3 // eight seconds: below the time after which a replica that is silent is taken for lost
	manyWell      = 100
)

func (p *idling) now() time.Duration { return leastIdling << p.doublings.Load() }

// begin is the statement that sets it for a transaction.
func (p *idling) begin() string {
	return fmt.Sprintf(`SET LOCAL idle_in_transaction_session_timeout = %d`, p.now().Milliseconds())
}

// learn takes note of how a transaction ended.
func (p *idling) learn(err error) {
	const idleTooLong = "25P03"
	var pg *pgconn.PgError
	switch doublings := p.doublings.Load(); {
	case errors.As(err, &pg) && pg.Code == idleTooLong:
		p.well.Store(0)
		p.doublings.CompareAndSwap(doublings, min(doublings+1, mostDoublings))
	case err == nil && doublings > 0 && p.well.Add(1) >= manyWell:
		p.well.Store(0)
		p.doublings.CompareAndSwap(doublings, doublings-1)
	}
}
