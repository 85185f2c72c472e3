package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func TestPostgresWaitsLongerForSlowNetworksOnly(t *testing.T) {
	var p idling
	want := func(d time.Duration) {
		t.Helper()
		if p.now() != d || !strings.HasSuffix(p.begin(), fmt.Sprint(" = ", d.Milliseconds())) {
			t.Errorf("it waits for %s (%s), want %s", p.now(), p.begin(), d)
		}
	}
	idle := fmt.Errorf("claiming: %w", &pgconn.PgError{Code: "25P03"})
	p.learn(nil)
	p.learn(errors.New("the network is cut"))
	p.learn(&pgconn.PgError{Code: "55P03"})
	want(time.Second)
	for _, d := range []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 8 * time.Second} {
		p.learn(idle)
		want(d)
	}
	for range manyWell - 1 {
		p.learn(nil)
	}
	want(8 * time.Second)
	p.learn(nil)
	want(4 * time.Second)
	for range 3 * manyWell {
		p.learn(nil)
	}
	want(time.Second)
}

// A claim that is well and took too long for Postgres is not lost: the next one may take longer.
func TestAClaimThatPostgresEndsIsMadeAgainWithMoreTime(t *testing.T) {
	c := newClaimer(t)
	err := c.onConn(t.Context(), func(conn *pgx.Conn) error {
		var b pgx.Batch
		c.queueBegin(&b, false)
		if err := conn.SendBatch(t.Context(), &b).Close(); err != nil {
			return err
		}
		pid := conn.PgConn().PID()
		for c.count(`SELECT count(*) FROM pg_stat_activity WHERE pid = $1`, pid) > 0 { // until Postgres has ended it
			if t.Context().Err() != nil {
				return t.Context().Err()
			}
		}
		return query(t.Context(), conn, `SELECT 1`)
	})
	if err == nil || c.idling.now() != 2*leastIdling {
		t.Errorf("%v; it now waits for %s, want %s", err, c.idling.now(), 2*leastIdling)
	}
}
