package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"punctual/scheduler/admit"

	"github.com/google/uuid"
	"golang.org/x/time/rate"

	"punctual/scheduler/credential"
	"punctual/scheduler/delivery"
	"punctual/scheduler/domain"
	"punctual/scheduler/trace"
)

// Config says how one replica runs.
type Config struct {
	Queues       map[string]int  // worker slots by queue; none: the replica claims nothing, and does everything else
	MostRequests int             // in flight at once, whatever worker slots there are; 0: any number
	DrainTimeout time.Duration   // how long a stop waits for requests in flight
	Hurry        context.Context // ends when a stop must not wait for them any longer; nil: never
	Client       *delivery.Client
	Mailer       *delivery.Mailer // nil: no e-mail is sent
	Host         string           // for people
	Version      string
	Origin       domain.Origin
	Log          *slog.Logger
	Metrics      *Metrics
	Credentials  credential.Source
	Chores       []Chore       // what the replica does beside its claims
	Notices      Notices       // nil: the replica tells nobody
	Shortages    *Shortages    // nil: the scheduler makes its own
	Vitals       *Vitals       // nil: the same
	Tracer       *trace.Tracer // nil: no spans are made
	// Again, if set, is told why a registration failed, waits, and reports whether to try it again.
	Again func(ctx context.Context, err error) bool
	// Finished, if set, gets every batch of outcomes that was written. It must not keep the slice.
	Finished func([]domain.Outcome)
}

const (
	lendEvery = time.Second
	// flushTimeout bounds the last writes of a stopping replica. Together with the drain timeout it stays below the 30 s
	// that Kubernetes allows.
	flushTimeout = 4 * time.Second
)

// The chores that are the scheduler's own.
const (
	// ChoreHolds reports what the replica holds back, and releases runs that no replica holds back any more. In this
	// order: otherwise runs would be released that wait for a host whose breaker has just opened here.
	ChoreHolds   = "report-holds"
	choreReplace = "replace"
	// choreOutcomes looks whether the database still has the outcomes that it acknowledged.
	choreOutcomes = "outcomes"
)

// Scheduler is one replica: it claims, executes and finishes runs until it is stopped.
type Scheduler struct {
	store     Store
	config    Config
	replica   Replica
	log       *slog.Logger
	metrics   *Metrics
	clock     dbClock
	admission admit.Admission
	drawing   sync.Mutex // one Draw at a time
	finisher  *finisher
	heart     *heartbeat
	chores    chores
	flights   flights
	transport *Transport
	freezing  freezing
	unread    rate.Sometimes // says in the log that secrets cannot be read
	running   sync.WaitGroup // attempts and notices in flight
	messages  chan struct{}  // one for each message of the outbox in flight
	batches   atomic.Int32   // those of them that are batches of events of the lifecycle of runs

	workCtx context.Context // ends when attempts in flight must end
}

// errDraining is the cause when an attempt is cut off because its replica stops.
var errDraining = errors.New("the replica is stopping")

// Run runs a replica until ctx ends, drains it, and returns when all of it has stopped. To drain, it claims no more,
// lets attempts in flight finish within the drain timeout, interrupts the others, and writes every outcome. It fails
// only when it cannot start.
func Run(ctx context.Context, store Store, config Config) error {
	replica := Replica{ID: uuid.New(), Host: config.Host, Version: config.Version, Queues: config.Queues}
	numbers, err := register(ctx, store, replica, config.Again)
	if err != nil || ctx.Err() != nil {
		leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		left := store.Deregister(leaving, replica.ID)
		if ctx.Err() != nil { // the replica was stopped before it had started
			return left
		}
		return errors.Join(fmt.Errorf("starting the scheduler: %w", err), left)
	}
	log := config.Log.With("replica", replica.ID)
	if config.Shortages == nil {
		config.Shortages = new(Shortages)
	}
	if config.Vitals == nil {
		config.Vitals = new(Vitals)
	}
	config.Vitals.Begin()
	s := &Scheduler{
		store: store, config: config, replica: replica, log: log, metrics: config.Metrics,
		transport: NewTransport(config.Credentials, config.Client, config.Mailer, config.Origin),
		messages:  make(chan struct{}, mostMessages),
		unread:    rate.Sometimes{Interval: unreadRetry},
	}
	s.freezing.log = log
	own := []Chore{
		{Name: ChoreHolds, Does: "reporting what holds runs back", Batch: s.tellHolds},
		{Name: choreReplace, Does: "claiming slots that replace runs in flight", Batch: s.replace},
		{Name: choreOutcomes, Does: "looking for lost outcomes", Every: time.Minute, Batch: s.doubt},
	}
	if config.Notices != nil {
		own = append(own, Chore{Name: ChoreNotices, Does: "telling people", Batch: s.notify},
			Chore{Name: ChoreLifecycle, Does: "telling of the lifecycle of runs", Batch: s.collectLifecycle})
	}
	s.chores = chores{}
	for _, chore := range append(own, config.Chores...) {
		s.chores[chore.Name] = &duty{chore, s, make(chan struct{}, 1), store.Asked(chore.Name)}
	}
	slots := admit.NewSlots(config.Queues, numbers, config.MostRequests)
	s.admission = admit.New(slots, log, func() { s.chores.ask(ChoreHolds) })
	s.heart = newHeartbeat(s)
	s.finisher = &finisher{s: s, queue: make(chan *domain.Outcome, finisherQueue), gone: make(chan struct{})}
	s.metrics.watch(&s.admission, &s.clock)
	if len(config.Queues) > 0 {
		log.Info("scheduler started", "queues", config.Queues)
	} else {
		log.Info("this replica serves only the API: it claims nothing")
	}
	s.run(ctx)
	return nil
}

// register makes the replica known, and returns the number of each of its queues. An interrupted registration may
// still be committed after the replica has left, so a stop waits a little.
func register(
	ctx context.Context, store Store, replica Replica, again func(context.Context, error) bool,
) (map[string]int16, error) {
	registering, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(flushTimeout, cancel) })()
	for {
		numbers, err := store.Register(registering, replica)
		if err == nil || again == nil || !again(ctx, err) {
			return numbers, err
		}
	}
}

// run has three contexts: ctx ends when no more may be claimed, work when attempts must end, and flush when nothing
// more can be written.
func (s *Scheduler) run(ctx context.Context) {
	work, interrupt := context.WithCancelCause(context.WithoutCancel(ctx))
	flush, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	defer interrupt(nil)
	s.workCtx = work
	s.flights.endWith(work)

	// The first heartbeat brings what must be known before anything is claimed: limits, freezes, allowed targets.
	for !s.heart.beat(flush, false) && ctx.Err() == nil {
		sleep(ctx, heartbeatEvery)
	}
	var claiming, writing sync.WaitGroup
	if len(s.config.Queues) > 0 {
		claiming.Go(func() { newTicker(s).run(ctx) })
	}
	for _, chore := range s.chores {
		claiming.Go(func() { chore.run(ctx) })
	}
	claiming.Go(func() { every(ctx, lendEvery, s.lendSlots) })
	claiming.Go(func() { every(ctx, admit.CutEvery, s.admission.Slots.Grow) })
	writing.Go(func() { s.finisher.run(flush) })
	beating, stopBeating := context.WithCancel(flush)
	writing.Go(func() {
		steadily(beating, heartbeatEvery, func(c context.Context) { s.heart.beat(c, ctx.Err() != nil) })
	})
	writing.Go(func() { every(beating, selfCheckEvery, s.heart.check) })

	<-ctx.Done()
	s.log.Info("stopping: claiming no more", "drain_timeout", s.config.DrainTimeout)
	// Both timers run from now, whatever the database does meanwhile.
	timer := time.AfterFunc(s.config.DrainTimeout, func() { interrupt(errDraining) })
	last := time.AfterFunc(s.config.DrainTimeout+flushTimeout, giveUp)
	defer last.Stop()
	if s.config.Hurry != nil {
		defer context.AfterFunc(s.config.Hurry, func() {
			interrupt(errDraining)
			time.AfterFunc(flushTimeout, giveUp)
		})()
	}
	claiming.Wait()
	s.heart.beat(flush, true)
	s.running.Wait()
	timer.Stop()
	time.AfterFunc(flushTimeout, giveUp)
	stopBeating()
	close(s.finisher.queue)
	writing.Wait()
	if err := s.store.Deregister(flush, s.replica.ID); err != nil {
		s.log.Warn("the replica's row could not be removed; other replicas will remove it", "error", err)
	}
	s.transport.sender.Forget()
	s.log.Info("scheduler stopped")
}
