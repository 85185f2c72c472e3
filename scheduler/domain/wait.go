package domain

// Wait is the kind of what a due run waits for.
type Wait string

// What runs in ready wait for, as in its column waits.
const (
	WaitTurn   Wait = "turn"   // the instant at which it is due, then a worker slot
	WaitHost   Wait = "host"   // a host that cannot be reached, or hangs
	WaitGate   Wait = "gate"   // another run of its job
	WaitLimit  Wait = "limit"  // room at a limit that jobs share
	WaitTarget Wait = "target" // its target, which works on
	WaitPerson Wait = "person" // an approval
)

// What they wait for besides, by what is known of their tenant, queue and host. The first that holds is told.
const (
	WaitFrozen  Wait = "frozen"  // nothing of its tenant is claimed
	WaitPaused  Wait = "paused"  // its job is paused
	WaitAside   Wait = "aside"   // it fails by itself
	WaitQueue   Wait = "queue"   // no live replica serves its queue
	WaitHanging Wait = "hanging" // a host whose requests time out
	WaitTenant  Wait = "tenant"  // a limit of its tenant
	WaitSlots   Wait = "slots"   // the concurrency of its queue is used up
	WaitSteps   Wait = "steps"   // its steps have not all ended
)

// Waits lists what runs in ready wait for, as in its column waits.
func Waits() []Wait {
	return []Wait{WaitTurn, WaitHost, WaitGate, WaitLimit, WaitTarget, WaitPerson}
}
