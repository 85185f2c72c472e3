package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"punctual/store/pg"
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
	want(leastIdling)
	for n := range mostDoublings {
		p.learn(idle)
		want(leastIdling << (n + 1))
	}
	p.learn(idle)
	want(leastIdling << mostDoublings)
	for range manyWell - 1 {
		p.learn(nil)
	}
	want(leastIdling << mostDoublings)
	p.learn(nil)
	want(leastIdling << (mostDoublings - 1))
	for range mostDoublings * manyWell {
		p.learn(nil)
	}
	want(leastIdling)
}

// A healthy claim that Postgres ended because it took too long is made again, with more time.
func TestAClaimThatPostgresEndsIsMadeAgainWithMoreTime(t *testing.T) {
	c := newClaimer(t)
	tries := 0
	err := c.wary.due.try(func(bool) error {
		tries++
		return c.onConn(t.Context(), func(conn *pgx.Conn) error {
			var b pgx.Batch
			c.queueBegin(&b, false)
			if err := conn.SendBatch(t.Context(), &b).Close(); err != nil {
				return err
			}
			if tries == 1 {
				until(t, c.db.Pool(), "Postgres to end the transaction",
					`SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)`, conn.PgConn().PID())
			}
			return pg.Exec(t.Context(), conn, `COMMIT`)
		})
	})
	if err != nil || tries != 2 || c.idling.now() != 2*leastIdling {
		t.Errorf("%v after %d tries; it may now take %s, want %s", err, tries, c.idling.now(), 2*leastIdling)
	}
}

// An outcome that is left out, because a row is locked, is reported although its write was made twice.
func TestAnOutcomeLeftOutIsReportedThoughTheWriteIsMadeAgain(t *testing.T) {
	c := newClaimer(t)
	locked, free := c.manual("locked"), c.manual("free")
	c.exec(`CREATE SEQUENCE punctual.tries;
		CREATE FUNCTION punctual.idle_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF nextval('punctual.tries') = 1 THEN RAISE EXCEPTION 'idle for too long' USING ERRCODE = '25P03'; END IF;
			RETURN NEW;
		END $$;
		CREATE TRIGGER idle_once BEFORE UPDATE ON punctual.runs FOR EACH ROW
			WHEN (NEW.status = 'succeeded') EXECUTE FUNCTION punctual.idle_once()`)
	c.stranger(`runs WHERE id = $1`, locked.RunID)
	left, _ := c.finishWhatItCan(succeeded(locked), succeeded(free))
	if len(left) != 1 || left[0] != locked.RunID {
		t.Errorf("left out are %v, want %s", left, locked.RunID)
	}
	if n := c.count(`SELECT count(*) FROM punctual.runs WHERE id = $1 AND status = 'succeeded'`, free.RunID); n != 1 {
		t.Error("the other outcome is not written")
	}
	if c.count(`SELECT last_value FROM punctual.tries`) < 2 {
		t.Error("the write was made once")
	}
}
