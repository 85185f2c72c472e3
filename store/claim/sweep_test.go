package claim

import (
	"testing"

	"github.com/google/uuid"

	"punctual/store/definitions"
)

// What a replica remembers of a database may not be true any more on a new timeline.
func TestANewTimelineLetsTheSweepBeginAnew(t *testing.T) {
	t.Parallel()
	s := &Claims{definitions: definitions.New(0, 0)}
	s.look(timeline{here: "00000001"})
	run := uuid.New()
	s.swept.advance(nil, &run)
	s.look(timeline{here: "00000001"})
	if s.swept.reached() != &run || s.failedOver.Load() {
		t.Errorf("on the same timeline the sweep goes on from %v", s.swept.reached())
	}
	s.look(timeline{here: "00000002"})
	if s.swept.reached() != nil || !s.failedOver.Load() {
		t.Error("the sweep goes on as if nothing were lost")
	}
	s.swept.advance(&run, new(uuid.New())) // of a batch that was under way
	if s.swept.reached() != nil {
		t.Error("a batch that was under way let the sweep go on where it was")
	}
}
