package store

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	"punctual/store/pg"
)

func TestAReadOnlyDatabaseIsNoticedByWritesAlone(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	if err := openStore(t, Options{DatabaseURL: dsn}).CheckWrites(); err != nil {
		t.Errorf("before any write: %v", err)
	}
	readOnly := openStore(t, Options{DatabaseURL: dsn + "&default_transaction_read_only=on"})
	if _, err := readOnly.Renew(t.Context(), uuid.New(), false); err == nil {
		t.Fatal("a read-only database took a heartbeat")
	}
	var refused *pg.WriteError
	if err := readOnly.CheckWrites(); !errors.As(err, &refused) || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("%v", err)
	}
}
