package claim

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/scheduler/trace"
	"punctual/store/aside"
	"punctual/store/days"
	"punctual/store/definitions"
	"punctual/store/fences"
	"punctual/store/freeze"
	"punctual/store/pg"
)

// Options says what claims need to know of the deployment and of the rooms above.
type Options struct {
	Log *slog.Logger

	// Soon is SQL for an array of the names of the chores that have work, of those whose work callers write in SQL. Each
	// look for due work asks it, so that such work need not wait for a heartbeat.
	Soon string
	// Always is SQL for all of them. They are asked for if what Soon reads cannot be read.
	Always string

	// Ended, if set, is told of attempts that another replica than their own has ended.
	Ended func([]domain.Outcome)

	Tracer *trace.Tracer // is told of all attempts and runs that end; nil: no spans are made
}

// Claims is what the loops need of the database. Safe for concurrent use.
type Claims struct {
	rooms
	options   Options
	followers followers
	experience

	takenBack atomic.Int64 // runs that nobody had and that were taken back: see Sweep and Lose

	// swept is how far the sweep has come, from the newest run back to the oldest: it has looked at the runs from this id
	// on; nil: at none.
	swept atomic.Pointer[uuid.UUID]

	tokenKey atomic.Pointer[[]byte] // the key that makes run tokens, once it was read
}

// rooms are what claims stand on.
type rooms struct {
	db          *pg.DB
	days        *days.Days
	freezes     *freeze.Switch
	definitions *definitions.Definitions
	aside       *aside.Aside
	fences      *fences.Guard
	overdue     Overdue
}

// experience is what claims and finishes have learned from those before.
type experience struct {
	wary     wariest
	later    later
	patient  patient
	sieves   sieves
	suspects suspects
	bounds   [domain.WorkKinds]bound // of slots there are none: most of their claims look at the last seconds only
	failing  failing                 // tenants of whose limits nothing can be drawn

	uncompiled atomic.Bool // most of the last claim's definitions were not compiled yet: it is likely of the next one too
}

// Rooms are the rooms that claims stand on.
type Rooms struct {
	DB          *pg.DB
	Days        *days.Days
	Freezes     *freeze.Switch
	Definitions *definitions.Definitions
	Followers   []Follower // are asked in this order, and the claim's own limits last
	Aside       *aside.Aside
	Fences      *fences.Guard
	Overdue     Overdue
}

// Overdue judges runs of workflows that are due at an instant. It takes each as an outcome without a verdict, and
// returns what becomes of it, by run. Await is no end: the run is looked at again after RetryIn. With ReasonTimeout its
// time is up, and its last steps clean up.
type Overdue func(
	ctx context.Context, q pg.Querier, runs []domain.Outcome, now time.Time,
) (map[uuid.UUID]domain.Outcome, error)

// New returns Claims that stand on other rooms.
func New(r Rooms, o Options) *Claims {
	s := &Claims{
		rooms: rooms{r.DB, r.Days, r.Freezes, r.Definitions, r.Aside, r.Fences, r.Overdue}, options: o,
		experience: experience{sieves: newSieves()},
	}
	s.followers = append(r.Followers, Follows(func() Following { return &limitsFollowing{} }))
	s.fences.OnOther(func() {
		s.definitions.Forget() // lost versions have given their numbers to others
		s.swept.Store(nil)
	})
	return s
}

// Wake implements scheduler.Store.
func (s *Claims) Wake() <-chan struct{} { return s.db.Woken() }

// Asked implements scheduler.Store.
func (s *Claims) Asked(chore string) <-chan struct{} { return s.db.Asked(chore) }
