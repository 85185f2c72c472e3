package pg

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestARefusedWriteCountsForSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var db DB
		for _, other := range []error{nil, errors.New("connection reset"), &pgconn.PgError{Code: "40P01"}} {
			if got := db.TookWrite(other); !errors.Is(got, other) || db.CheckWrites() != nil {
				t.Errorf("%v: %v, %v", other, got, db.CheckWrites())
			}
		}
		_ = db.TookWrite(fmt.Errorf("claiming: %w", &pgconn.PgError{Code: "53100"}))
		if err := db.CheckWrites(); err == nil || !strings.Contains(err.Error(), "disk is full") {
			t.Errorf("%v", err)
		}
		time.Sleep(refusalCounts + 1)
		if err := db.CheckWrites(); err != nil {
			t.Errorf("no write was refused since, but: %v", err)
		}
	})
}
