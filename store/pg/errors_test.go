package pg

import (
	"errors"
	"fmt"
	"io"
	"net"
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

// A failover explains the first, and time mends none of the others.
func TestWhatAFailoverExplainsIsAway(t *testing.T) {
	t.Parallel()
	refused := func(code string) error { return &pgconn.PgError{Code: code} }
	malformed := pgconn.NewParseConfigError("h:port", "bad port", &net.OpError{Op: "dial", Err: errors.New("x")})
	for want, all := range map[bool][]error{
		true: {
			refused("25006"), refused("57P01"), refused("57P02"), refused("57P03"), refused("08006"), io.ErrUnexpectedEOF,
			&net.OpError{Op: "read", Err: errors.New("reset")}, &pgconn.ConnectError{},
		},
		false: {nil, refused("28P01"), refused("3D000"), refused("42501"), errors.New("the schema is too old"), malformed},
	} {
		for _, err := range all {
			if err != nil {
				err = fmt.Errorf("starting: %w", err)
			}
			if Away(err) != want {
				t.Errorf("%v: away is %t, want %t", err, !want, want)
			}
		}
	}
}
