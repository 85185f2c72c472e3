package claim

import (
	"slices"
	"testing"

	"punctual/scheduler/admit"
)

func TestAQueueThatIsUsedUpIsToldThoughOthersAreNot(t *testing.T) {
	quotas := []admit.Quota{{Queue: 1, Slots: 2}, {Queue: 2, Slots: 10}}
	same := func(p place) place { return p }
	if len(usedUp(quotas, []place{{1, 7}, {2, 7}}, same)) != 0 {
		t.Error("no quota is used up")
	}
	if full := usedUp(quotas, []place{{1, 7}, {1, 8}, {2, 7}}, same); !slices.Equal(full, []int16{1}) {
		t.Errorf("the quota of queue 1 is used up, not of %v", full)
	}
}
