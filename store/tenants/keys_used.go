package tenants

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/google/uuid"
)

// usedKeys are the keys that requests to this process have used since it last wrote them down.
type usedKeys struct {
	mu  sync.Mutex
	ids map[uuid.UUID]bool
}

// KeyUsed notes that a key was used. A chore of the replica writes it; the note is lost with the process.
func (s *Tenants) KeyUsed(id uuid.UUID) {
	s.used.mu.Lock()
	defer s.used.mu.Unlock()
	if s.used.ids == nil {
		s.used.ids = map[uuid.UUID]bool{}
	}
	s.used.ids[id] = true
}

func (s *Tenants) takeUsedKeys() []uuid.UUID {
	s.used.mu.Lock()
	defer s.used.mu.Unlock()
	ids := slices.Collect(maps.Keys(s.used.ids))
	clear(s.used.ids)
	return ids
}

// NoteKeysUsed writes which keys were used since the last call. The instant is exact to the minute, so it is enough if
// one of several replicas writes it.
func (s *Tenants) NoteKeysUsed(ctx context.Context) error {
	ids := s.takeUsedKeys()
	if len(ids) == 0 {
		return nil
	}
	_, err := s.db.Conns(ctx).Exec(ctx, `
		WITH used AS (
			SELECT id FROM punctual.api_keys
			WHERE id = ANY($1::uuid[]) AND (last_used_at < date_trunc('minute', now())) IS NOT FALSE
			ORDER BY id FOR NO KEY UPDATE SKIP LOCKED)
		UPDATE punctual.api_keys k SET last_used_at = date_trunc('minute', now()) FROM used WHERE k.id = used.id`, ids)
	if err != nil {
		return fmt.Errorf("noting which keys were used: %w", err)
	}
	return nil
}
