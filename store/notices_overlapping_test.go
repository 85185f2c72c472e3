package store

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
)

// slotAt records what became of a slot: it ran, or was skipped or replaced because the run before had not ended.
func (c crud) slotAt(job uuid.UUID, at time.Time, fate string) {
	c.t.Helper()
	switch fate {
	case "ran":
		c.ranAt(job, domain.SlotRunID(job, at), at)
	case "replaced":
		c.ranAt(job, domain.SlotRunID(job, at), at)
		c.exec(`UPDATE punctual.runs SET status = 'cancelled', reason = 'replaced' WHERE id = $1`, domain.SlotRunID(job, at))
	default:
		c.skippedAt(job, at, at, 1)
		c.exec(`UPDATE punctual.runs SET id = $2, reason = $3, created_at = $4 WHERE job_id = $1 AND skipped_last = $4`, job,
			domain.NewRunID(at), fate, at)
	}
}

func (c claimer) lookForOverlaps() {
	c.t.Helper()
	_, err := c.FindOverlapping(c.t.Context())
	must(c.t, err)
}

func TestAJobMostOfWhoseSlotsAreSkippedIsToldOfOnce(t *testing.T) {
	c := newClaimer(t)
	now := time.Now().UTC().Truncate(time.Second)
	job := c.create("job", rarely, forbid, everything).ID
	c.create("well", rarely, forbid, everything)
	quiet := c.create("quiet", rarely, forbid).ID // without a recipient
	for i := range 22 {                           // every three minutes: two of three are skipped
		fate := "overlap"
		if i%3 == 2 {
			fate = "ran"
		}
		for _, id := range []uuid.UUID{job, quiet} {
			c.slotAt(id, now.Add(-time.Duration(i*3)*time.Minute), fate)
		}
	}
	c.lookForOverlaps()
	a := c.wantHeard("overlapping 1")
	if e := news(t, a).Events[0]; len(e.Runs) != 1 || e.Since == nil || now.Sub(*e.Since) != 63*time.Minute ||
		!strings.HasPrefix(e.Runs[0].Error, "15 of 22 slots since ") || e.Runs[0].Reason != domain.ReasonOverlap {
		t.Errorf("told of %+v", e)
	}
	c.lookForOverlaps()
	c.wantHeard("") // it goes on

	// The three newest slots ran: it is over, and may begin again.
	for i := range 3 {
		c.slotAt(job, now.Add(time.Duration(i+1)*time.Second), "ran")
	}
	c.lookForOverlaps()
	c.wantHeard("")
	c.wantCount(0, "job is still marked", `SELECT count(*) FROM punctual.notified WHERE overlapping_since IS NOT NULL`)
	c.slotAt(job, now.Add(5*time.Second), "overlap")
	c.exec(`UPDATE punctual.notified SET sent = '{}'`)
	for i := range 20 {
		c.slotAt(job, now.Add(-time.Duration(i)*time.Minute-30*time.Second), "overlap")
	}
	c.lookForOverlaps()
	c.wantHeard("overlapping 1")
}

func TestWhatIsNoSteadyOverlap(t *testing.T) {
	c := newClaimer(t)
	now := time.Now().UTC().Truncate(time.Second)
	for name, fates := range map[string][]string{ // every half an hour, the newest first
		"two slots":        {"overlap", "overlap"},
		"every other slot": {"overlap", "ran", "overlap", "ran", "overlap", "ran"},
		"slots of a pause": {"paused", "paused", "paused", "paused"},
	} {
		id := c.create(strings.ReplaceAll(name, " ", "-"), rarely, forbid, everything).ID
		for i, fate := range fates {
			c.slotAt(id, now.Add(-time.Duration(i)*30*time.Minute), fate)
		}
	}
	brief := c.create("brief", rarely, forbid, everything).ID
	for i := range 40 {
		c.slotAt(brief, now.Add(-time.Duration(i)*time.Minute), "overlap")
	}
	c.lookForOverlaps()
	c.wantHeard("")

	id := c.create("replaced", rarely, everything).ID
	for i := range 4 {
		c.slotAt(id, now.Add(-time.Duration(i)*40*time.Minute-time.Minute), "replaced")
	}
	c.lookForOverlaps()
	c.wantHeard("overlapping 1")
}
