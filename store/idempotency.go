package store

import (
	"bytes"
	"context"
	"fmt"

	"punctual/store/events"
	"punctual/store/jobs"
	"punctual/store/letters"
	"punctual/store/pg"
	"punctual/store/seal"
)

// Writer makes jobs, runs, operations and events of one tenant: each in a transaction of its own, or all of them
// together with an Idempotency-Key. See Store.For and Store.Idempotent.
type Writer struct {
	jobs.Writer
	letters.Operator
	events.Emitter
}

// For returns a Writer for a tenant, whose writes have transactions of their own.
func (s *Store) For(tenant int32) Writer {
	return s.writer(s.DB.Callers.For(tenant))
}

func (s *Store) writer(w pg.Writes) Writer {
	return Writer{s.Jobs.Writer(w), s.Letters.Operator(w), s.Events.Emitter(w)}
}

// Idempotency makes a write happen once per key. If the key is new, the write and the rendered answer are committed
// together. If the key is known with the same hash, nothing is written and the first answer is returned. With another
// hash the error is ErrKeyReused.
type Idempotency struct {
	Key  string
	Hash [32]byte // of method, path and body
}

// Answer is a rendered response that is stored with an Idempotency-Key.
type Answer struct {
	Status int
	Body   []byte // JSON
}

// keyLifetime is how long a key answers for its request.
const keyLifetime = `interval '24 hours'`

// Idempotent makes a write happen once per key. If the key is new, write runs. What it writes through its Writer is
// committed together with the answer it returns. An error of write is returned as it is, and nothing is kept. If the
// key came before with the same request, write does not run and the first answer comes back, with replayed true. If the
// key came before with another request, the error is ErrKeyReused. A request waits for another one with the same key
// that is under way.
func (s *Store) Idempotent(
	ctx context.Context, tenant int32, k Idempotency, write func(w Writer) (Answer, error),
) (a Answer, replayed bool, err error) {
	err = s.DB.Callers.InTx(ctx, tenant, func(tx *pg.Tx) error {
		for range 5 { // the key may be removed between the two statements
			taken, err := takeKey(ctx, tx, tenant, k)
			if err != nil {
				return err
			}
			if taken {
				if a, err = write(s.writer(pg.Writes{Pool: s.DB.Callers, Tenant: tenant, Tx: tx})); err != nil {
					return err
				}
				return keepAnswer(ctx, tx, tenant, k, a)
			}
			var known bool
			if a, known, err = firstAnswer(ctx, tx, tenant, k); known || err != nil {
				replayed = true
				return err
			}
		}
		return fmt.Errorf("the Idempotency-Key was removed during every attempt to read it: %w", ErrKeyReused)
	})
	if err != nil {
		return Answer{}, false, err
	}
	return a, replayed, nil
}

// takeKey writes the key. It waits for a transaction that is writing the same key. An expired key counts as new.
func takeKey(ctx context.Context, tx *pg.Tx, tenant int32, k Idempotency) (bool, error) {
	done, err := tx.Exec(ctx, `
		INSERT INTO punctual.idempotency_keys AS k (tenant, key, request_hash, status, response)
		VALUES ($1, $2, $3::bytea, 0, 'null')
		ON CONFLICT (tenant, key) DO UPDATE SET request_hash = excluded.request_hash, created_at = now()
		WHERE k.created_at < now() - `+keyLifetime, tenant, k.Key, k.Hash[:])
	return done.RowsAffected() == 1, pg.Wrap("writing the Idempotency-Key", err)
}

func keepAnswer(ctx context.Context, tx *pg.Tx, tenant int32, k Idempotency, a Answer) error {
	body := a.Body
	if len(body) == 0 {
		body = []byte("null")
	}
	return pg.Wrap("keeping the answer to the Idempotency-Key", pg.Exec(ctx, tx, `
		UPDATE punctual.idempotency_keys SET status = $3, response = $4::json WHERE tenant = $1 AND key = $2`,
		tenant, k.Key, a.Status, seal.JSON(body)))
}

// firstAnswer returns the answer that is stored with the key. known is false if the key has just been deleted.
func firstAnswer(ctx context.Context, tx *pg.Tx, tenant int32, k Idempotency) (a Answer, known bool, err error) {
	var hash []byte
	var body seal.JSON
	err = tx.QueryRow(ctx, `
		SELECT request_hash, status, response FROM punctual.idempotency_keys WHERE tenant = $1 AND key = $2`,
		tenant, k.Key).Scan(&hash, &a.Status, &body)
	if known, err = pg.Some(err); !known {
		return Answer{}, false, pg.Wrap("reading the Idempotency-Key", err)
	}
	if !bytes.Equal(hash, k.Hash[:]) {
		return Answer{}, false, ErrKeyReused
	}
	if string(body) != "null" {
		a.Body = body
	}
	return a, true, nil
}
