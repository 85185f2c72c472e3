package domain

// Wait is what a run that is in ready waits for, as in its column waits.
type Wait string

// What runs wait for.
const (
	WaitTurn   Wait = "turn"   // the instant at which it is due, then a worker slot
	WaitHost   Wait = "host"   // a host that cannot be reached, or hangs
	WaitGate   Wait = "gate"   // another run of its job
	WaitLimit  Wait = "limit"  // room at a limit that jobs share
	WaitTarget Wait = "target" // its target, which works on
	WaitPerson Wait = "person" // an approval
)

// Waits lists what runs in ready wait for.
func Waits() []Wait {
	return []Wait{WaitTurn, WaitHost, WaitGate, WaitLimit, WaitTarget, WaitPerson}
}
