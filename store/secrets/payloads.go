package secrets

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"punctual/store/pg"
	"punctual/store/vault"
)

// Payloads are sealed with data keys of their own, which are never dropped: a rotation makes a new one and does not
// touch what is sealed, which may be in archives, too. They are sealed and opened while rows are written and read, so
// the key is in memory, or is read on a connection of its own.

// ErrNoPayloadKey says that this process has read no key for payloads.
var ErrNoPayloadKey = errors.New("there is no data key for payloads")

// payloadKeys implements seal.Keys.
type payloadKeys struct {
	secrets *Secrets
	latest  atomic.Int64  // id of the key that was made last, as far as is known; 0: none is
	asked   *rate.Limiter // how often keys are looked for that are not known
	reading sync.Mutex
	sealing atomic.Pointer[vault.DataKey] // what sealed last
}

// readKeyWithin bounds the read of a data key.
const readKeyWithin = 5 * time.Second

// Sealing implements seal.Keys. Until the latest key can be read, the one before it seals.
func (p *payloadKeys) Sealing() (*vault.DataKey, error) {
	latest, last := p.latest.Load(), p.sealing.Load()
	if last != nil && last.ID == latest {
		return last, nil
	}
	if latest == 0 {
		return nil, ErrNoPayloadKey
	}
	key, err := p.Opening(latest)
	if err != nil && last != nil {
		return last, nil // it is as good, and the next payload asks again
	}
	if err == nil {
		p.sealing.Store(key)
	}
	return key, err
}

// Opening implements seal.Keys.
func (p *payloadKeys) Opening(id int64) (*vault.DataKey, error) {
	if key := p.secrets.keyring.get(id); key != nil {
		return key, nil
	}
	if p.secrets.master == nil {
		return nil, ErrNoMaster
	}
	p.reading.Lock()
	defer p.reading.Unlock()
	if key := p.secrets.keyring.get(id); key != nil {
		return key, nil
	}
	if !p.asked.Allow() {
		return nil, fmt.Errorf("data key %d is not known yet", id)
	}
	ctx, cancel := context.WithTimeout(context.Background(), readKeyWithin)
	defer cancel()
	var key *vault.DataKey
	err := p.secrets.db.Apart(ctx, func(q pg.Querier) (err error) {
		key, err = p.secrets.dataKey(ctx, q, id)
		return pg.Found(err, "data key %d", id)
	})
	return key, err
}

const selectPayloadKey = `SELECT id FROM punctual.data_keys WHERE payloads ORDER BY number DESC LIMIT 1`

// Facts is SQL for the id of the key with which payloads are sealed, which every heartbeat reads: a rotation may have
// made another.
func (s *Secrets) Facts() string { return `SELECT coalesce((` + selectPayloadKey + `), 0)` }

// Learn takes the id of the key with which payloads are sealed from now on; 0: there is none.
func (s *Secrets) Learn(value []byte) error {
	id, err := strconv.ParseInt(string(value), 10, 64)
	if err == nil && id != 0 {
		s.payloads.latest.Store(id)
	}
	return pg.Wrap("reading the id of the data key of payloads", err)
}

// OpenPayloads makes sure that payloads can be sealed, if they are to be: it makes the first key for them. If there is
// a key, it makes sure that payloads that are sealed can be opened.
func (s *Secrets) OpenPayloads(ctx context.Context, seals bool) error {
	for range tries {
		id, err := s.latestPayloadKey(ctx, s.db.Runs)
		switch {
		case err != nil:
			return err
		case id == 0 && !seals:
			return nil
		case s.master == nil:
			return ErrNoMaster
		case id != 0:
			s.payloads.latest.Store(id)
			_, err := s.dataKey(ctx, s.db.Runs, id)
			return err
		}
		if err := s.makeFirstDataKey(ctx, s.db.Runs, forPayloads); err != nil {
			return err
		}
	}
	return ErrNoPayloadKey
}

// latestPayloadKey returns the id of the key that was made last; 0: there is none.
func (s *Secrets) latestPayloadKey(ctx context.Context, q pg.Querier) (id int64, err error) {
	_, err = pg.Some(q.QueryRow(ctx, selectPayloadKey).Scan(&id))
	return id, pg.Wrap("reading the data key of payloads", err)
}
