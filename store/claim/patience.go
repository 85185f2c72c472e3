package claim

import (
	"errors"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// patience is how long something may take that takes milliseconds as a rule. Where machines or networks are slow that
// proves too short, and it doubles. After many times in a row that went well it is halved. Safe for concurrent use.
type patience struct {
	doublings atomic.Int32
	well      atomic.Int32 // times in a row that went well
}

const (
	leastPatience = time.Second
	mostDoublings = 3 // 8 s: less than the silence after which a replica counts as lost
	manyWell      = 100
	longPatience  = 2 * leastPatience // long enough for what others do at once
)

func (p *patience) now() time.Duration { return leastPatience << p.doublings.Load() }

func (p *patience) milliseconds() int32 { return int32(p.now().Milliseconds()) }

// tooShort notes that it was.
func (p *patience) tooShort() {
	p.well.Store(0)
	doublings := p.doublings.Load()
	p.doublings.CompareAndSwap(doublings, min(doublings+1, mostDoublings))
}

// wentWell notes that it was long enough.
func (p *patience) wentWell() {
	if doublings := p.doublings.Load(); doublings > 0 && p.well.Add(1) >= manyWell {
		p.well.Store(0)
		p.doublings.CompareAndSwap(doublings, doublings-1)
	}
}

// patient is the patience of claims and finishes with two things.
type patient struct {
	// statements is how long one statement may take. One that takes longer hangs at one of its rows, and all others of the
	// batch with it: then the batch is done in parts. Only if no part is done in time either is the machine slow.
	statements patience

	// idling is how long Postgres waits for the next statement of a transaction. After that it ends the transaction, so
	// that other replicas can have its rows. Between two statements lies a round trip: a replica that is silent for longer
	// has stopped, or its network has. With slower round trips Postgres would end healthy claims. Such a claim is made
	// again with twice the time.
	idling patience
}

// mayTake sets the timeout of a transaction's statements: so many times the patience with them ($1, in milliseconds).
func mayTake(times string) string {
	return pg.ByIndex + `, set_config('statement_timeout', ($1::int * ` + times + `)::text, true)`
}

// mayIdle sets the timeout between them: $2, in milliseconds.
const mayIdle = `, set_config('idle_in_transaction_session_timeout', $2::int::text, true)`

// queueBegin begins a transaction that takes several round trips. Should this process stop between two of them,
// Postgres soon ends the transaction and frees the rows it has locked.
func (s *Claims) queueBegin(b *pgx.Batch, settings string) {
	b.Queue(pg.Begin, pg.Prepared{})
	b.Queue(settings, pg.Prepared{}, s.patient.statements.milliseconds(), s.patient.idling.milliseconds())
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

// learn adapts the patience with idling to how a transaction ended.
func (p *patience) learn(err error) {
	switch {
	case idledTooLong(err):
		p.tooShort()
	case err == nil:
		p.wentWell()
	}
}
