package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"punctual/internal/pgtest"
)

func TestAReadOnlyDatabaseIsNoticedByWritesAlone(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s, err := Open(t.Context(), Options{DatabaseURL: dsn})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.CheckWrites(); err != nil {
		t.Errorf("before any write: %v", err)
	}
	readOnly, err := Open(t.Context(), Options{DatabaseURL: dsn + "&default_transaction_read_only=on"})
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	if _, err := readOnly.Renew(t.Context(), uuid.New(), false); err == nil {
		t.Fatal("a read-only database took a heartbeat")
	}
	var refused *WriteError
	if err := readOnly.CheckWrites(); !errors.As(err, &refused) || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("%v", err)
	}
}

func TestARefusedWriteCountsForSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Store
		for _, other := range []error{nil, errors.New("connection reset"), &pgconn.PgError{Code: "40P01"}} {
			if got := s.tookWrite(other); !errors.Is(got, other) || s.CheckWrites() != nil {
				t.Errorf("%v: %v, %v", other, got, s.CheckWrites())
			}
		}
		_ = s.tookWrite(fmt.Errorf("claiming: %w", &pgconn.PgError{Code: "53100"}))
		if err := s.CheckWrites(); err == nil || !strings.Contains(err.Error(), "disk is full") {
			t.Errorf("%v", err)
		}
		time.Sleep(refusalCounts + 1)
		if err := s.CheckWrites(); err != nil {
			t.Errorf("no write was refused since, but: %v", err)
		}
	})
}
