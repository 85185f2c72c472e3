package store

import (
	"testing"
)

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
