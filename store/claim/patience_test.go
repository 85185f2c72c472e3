package claim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"punctual/internal/pgtest"
	"punctual/store/fences"
	"punctual/store/pg"
)

func TestPostgresWaitsLongerForSlowNetworksOnly(t *testing.T) {
	var p patience
	want := func(d time.Duration) {
		t.Helper()
		if p.now() != d {
			t.Errorf("it waits for %s, want %s", p.now(), d)
		}
	}
	idle := fmt.Errorf("claiming: %w", &pgconn.PgError{Code: "25P03"})
	p.learn(nil)
	p.learn(errors.New("the network is cut"))
	p.learn(&pgconn.PgError{Code: "55P03"})
	want(leastPatience)
	for n := range mostDoublings {
		p.learn(idle)
		want(leastPatience << (n + 1))
	}
	p.learn(idle)
	want(leastPatience << mostDoublings)
	for range manyWell - 1 {
		p.learn(nil)
	}
	want(leastPatience << mostDoublings)
	p.learn(nil)
	want(leastPatience << (mostDoublings - 1))
	for range mostDoublings * manyWell {
		p.learn(nil)
	}
	want(leastPatience)
}

// A healthy claim that Postgres ended because it took too long is made again, with more time.
func TestAClaimThatPostgresEndsIsMadeAgainWithMoreTime(t *testing.T) {
	db, err := pg.Open(t.Context(), pg.Config{URL: pgtest.DSN(t), MaxConns: 4, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	t.Parallel()
	c := New(Rooms{DB: db, Fences: fences.New(db, slog.New(slog.DiscardHandler))}, Options{})
	tries := 0
	err = c.wary.due.try(func(bool) error {
		tries++
		return c.onConn(t.Context(), db.Callers, func(conn *pgx.Conn) error {
			var b pgx.Batch
			c.queueBegin(&b, briefly)
			if err := conn.SendBatch(t.Context(), &b).Close(); err != nil {
				return err
			}
			var limit string
			if err := conn.QueryRow(t.Context(), `SHOW idle_in_transaction_session_timeout`).Scan(&limit); err != nil {
				return err
			}
			if want := c.patient.idling.now().String(); limit != want {
				t.Errorf("Postgres waits for %s, want %s", limit, want)
			}
			if tries == 1 {
				ended := false
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				for !ended {
					if err := db.Callers.QueryRow(ctx, `
						SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1) FROM pg_sleep(0.05)`,
						conn.PgConn().PID()).Scan(&ended); err != nil {
						t.Fatalf("waiting for Postgres to end the transaction: %v", err)
					}
				}
			}
			return pg.Exec(t.Context(), conn, `COMMIT`)
		})
	})
	if err != nil || tries != 2 || c.patient.idling.now() != 2*leastPatience {
		t.Errorf("%v after %d tries; it may now take %s, want %s", err, tries, c.patient.idling.now(), 2*leastPatience)
	}
}
