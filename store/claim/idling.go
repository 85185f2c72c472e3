package claim

import (
	"errors"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// idling is how long Postgres waits for the next statement of a claim. After that it ends the transaction, so that
// other replicas can have its rows. Between two statements lies a round trip, which takes milliseconds: a replica that
// is silent for much longer has stopped, or its network has. With slower round trips Postgres would end healthy
// claims. Such a claim is made again with twice the time. After many claims in a row that went well, the
// time is halved. Safe for concurrent use.
type idling struct {
	doublings atomic.Int32
	well      atomic.Int32 // claims in a row that went well
}

const (
	leastIdling   = 500 * time.Millisecond
	mostDoublings = 4 // 8 s: less than the silence after which a replica counts as lost
	manyWell      = 100
)

// mayIdle sets the timeout for a transaction: $2, in milliseconds.
const mayIdle = `, set_config('idle_in_transaction_session_timeout', $2, true)`

func (p *idling) now() time.Duration { return leastIdling << p.doublings.Load() }

func (p *idling) setting() string { return strconv.FormatInt(p.now().Milliseconds(), 10) }

// queueBegin begins a transaction that takes several round trips. Should this process stop between two of them,
// Postgres soon ends the transaction and frees the rows it has locked.
func (s *Claims) queueBegin(b *pgx.Batch, settings string) {
	b.Queue(pg.Begin, pg.Prepared{})
	b.Queue(settings, pg.Prepared{}, s.slowness.setting(), s.idling.setting())
}

// idledTooLong reports whether Postgres ended a transaction because of that timeout. Then nothing in it was done. A
// replica that sends the next statement before it reads why only sees that the other side has closed the connection.
func idledTooLong(err error) bool {
	return pg.Code(err) == "25P03" || errors.Is(err, syscall.EPIPE)
}

// patiently does work, and does it again, with more time, if Postgres has ended it because it idled for too long.
func patiently(work func() error) (err error) {
	for range mostDoublings + 1 {
		if err = work(); !idledTooLong(err) {
			break
		}
	}
	return err
}

// learn adapts the timeout to how a transaction ended.
func (p *idling) learn(err error) {
	switch doublings := p.doublings.Load(); {
	case idledTooLong(err):
		p.well.Store(0)
		p.doublings.CompareAndSwap(doublings, min(doublings+1, mostDoublings))
	case err == nil && doublings > 0 && p.well.Add(1) >= manyWell:
		p.well.Store(0)
		p.doublings.CompareAndSwap(doublings, doublings-1)
	}
}
