package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/breaker"
	"punctual/scheduler/delivery"
)

// Config says how one replica runs.
type Config struct {
	Queues       map[string]int  // worker slots by queue; none: the replica claims nothing, and does everything else
	DrainTimeout time.Duration   // how long a stop waits for requests in flight
	Hurry        context.Context // ends when a stop must not wait for them any longer; nil: never
	Client       *delivery.Client
	Host         string // for people
	Version      string
	PublicURL    string // where targets reach the API, without a trailing slash
	Log          *slog.Logger
	Metrics      *Metrics
	Finished     func([]Outcome) // if set, gets every batch of outcomes that was written; it must not keep the slice
}

const (
	resumeEvery   = 5 * time.Second
	resumeTimeout = 30 * time.Second
	lendEvery     = time.Second
	maintainEvery = time.Minute
	// flushTimeout bounds the last writes of a stopping replica. Together with the drain timeout it stays below the 30 s
	// that Kubernetes allows.
	flushTimeout = 4 * time.Second
)

// Scheduler is one replica: it claims, executes and finishes runs until it is stopped.
type Scheduler struct {
	store     Store
	config    Config
	replica   Replica
	log       *slog.Logger
	metrics   *Metrics
	clock     dbClock
	slots     *workerSlots
	limits    *limits
	finisher  *finisher
	heart     *heartbeat
	operator  chore
	notifier  chore
	tidier    chore
	listener  chore
	gates     chore
	replacer  chore
	flights   flights
	holds     *holds
	holder    chore
	tokens    *tokens
	tls       *tlsClients
	freezing  freezing
	toldHolds bool            // the database knows of something that this replica holds back; owned by holder
	running   sync.WaitGroup  // attempts in flight
	workCtx   context.Context // ends when attempts in flight must end
}

// errDraining is the cause when an attempt is cut off because its replica stops.
var errDraining = errors.New("the replica is stopping")

// Run runs a replica until ctx ends, drains it, and returns when all of it has stopped. To drain, it claims no more,
// lets attempts in flight finish within the drain timeout, interrupts the others, and writes every outcome. It fails
// only when it cannot start.
func Run(ctx context.Context, store Store, config Config) error {
	replica := Replica{ID: uuid.New(), Host: config.Host, Version: config.Version, Queues: config.Queues}
	numbers, held, err := enter(ctx, store, replica)
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
	s := &Scheduler{
		store: store, config: config, replica: replica, log: log, metrics: config.Metrics,
		slots:  newWorkerSlots(config.Queues, numbers),
		tokens: newTokens(), tls: newTLSClients(),
	}
	s.freezing.log = log
	s.holder = newChore("reporting what holds runs back", log, s.tellHolds)
	s.holds = &holds{
		breakers: breaker.New(log), hangs: breaker.NewHangs(log), sizes: s.slots.sizes(), changed: s.holder.ask,
	}
	s.limits = newLimits(s.slots)
	s.limits.set(held)
	s.heart = newHeartbeat(s)
	s.operator = newChore("work on operations", log, store.Operate)
	s.notifier = newChore("creating notices of jobs", log, func(ctx context.Context) (time.Duration, bool, error) {
		left, err := store.Notify(ctx)
		return 0, left, err
	})
	s.tidier = newChore("removing data past its retention", log, s.tidy)
	s.listener = newChore("ending attempts whose targets are silent", log, store.EndSilent)
	s.gates = newChore("freeing the gates of jobs", log, func(ctx context.Context) (time.Duration, bool, error) {
		return 0, false, store.FreeGates(ctx)
	})
	s.replacer = newChore("claiming slots that replace runs in flight", log, s.replace)
	s.finisher = newFinisher(store, log, config, s.heart.release)
	s.metrics.watch(s.slots, s.holds, s.limits)
	if len(config.Queues) > 0 {
		log.Info("scheduler started", "queues", config.Queues)
	} else {
		log.Info("this replica serves only the API: it claims nothing")
	}
	s.run(ctx)
	return nil
}

// enter makes the replica known and does what must be done before anything is claimed. It returns the numbers of its
// queues and the limits of tenants.
func enter(
	ctx context.Context, store Store, replica Replica,
) (numbers map[string]int16, held []TenantLimits, err error) {
	// An interrupted registration may still be committed after the replica has left.
	registering, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(flushTimeout, cancel) })()
	if numbers, err = store.Register(registering, replica); err != nil {
		return nil, nil, err
	}
	if err = store.Maintain(ctx); err != nil {
		return nil, nil, err
	}
	held, err = store.Limits(ctx)
	return numbers, held, err
}

// run has three contexts: ctx ends when no more may be claimed, work when attempts must end, and flush when nothing
// more can be written.
func (s *Scheduler) run(ctx context.Context) {
	work, interrupt := context.WithCancelCause(context.WithoutCancel(ctx))
	flush, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	defer interrupt(nil)
	s.workCtx = work

	s.heart.beat(flush, false) // says which targets tenants may call, which must be known before anything is sent
	var claiming, writing sync.WaitGroup
	if len(s.config.Queues) > 0 {
		claiming.Go(func() { newTicker(s).run(ctx) })
	}
	claiming.Go(func() { s.resume(ctx) })
	claiming.Go(func() { every(ctx, maintainEvery, s.maintain) })
	claiming.Go(func() { s.tidier.run(ctx) })
	claiming.Go(func() { s.operator.run(ctx) })
	claiming.Go(func() { s.notifier.run(ctx) })
	claiming.Go(func() { s.listener.run(ctx) })
	claiming.Go(func() { s.holder.run(ctx) })
	claiming.Go(func() { s.gates.run(ctx) })
	claiming.Go(func() { s.replacer.run(ctx) })
	claiming.Go(func() { every(ctx, lendEvery, s.lendSlots) })
	writing.Go(func() { s.finisher.run(flush) })
	beating, stopBeating := context.WithCancel(flush)
	writing.Go(func() { every(beating, heartbeatEvery, func(c context.Context) { s.heart.beat(c, ctx.Err() != nil) }) })
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
	s.tls.close()
	s.log.Info("scheduler stopped")
}

// resume ends pauses as they run out, until ctx ends. A pause that was set during a sleep and runs out sooner waits
// for the next look.
func (s *Scheduler) resume(ctx context.Context) {
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, resumeTimeout)
		n, next, err := s.store.ResumeDue(limited)
		cancel()
		switch {
		case err != nil && ctx.Err() == nil:
			s.log.Warn("jobs whose pause has run out could not be resumed; tried again", "error", err)
		case n > 0:
			s.log.Info("jobs resumed: their pause has run out", "count", n)
		}
		wait := spread(resumeEvery)
		if err == nil && next > 0 {
			wait = min(wait, next)
		}
		sleep(ctx, wait)
	}
}

func (s *Scheduler) maintain(ctx context.Context) {
	if err := s.store.Maintain(ctx); err != nil && ctx.Err() == nil {
		s.metrics.chores.Inc()
		s.log.Error("maintenance failed; tried again in a minute", "error", err)
	}
	s.tidier.ask()
}

// tidy is a chore of its own, because it may take minutes.
func (s *Scheduler) tidy(ctx context.Context) (wait time.Duration, left bool, err error) {
	left, failed := s.store.Tidy(ctx)
	if failed != nil && ctx.Err() == nil {
		s.metrics.chores.Inc()
		s.log.Error("not all chores that take minutes could be done; tried again in a minute", "error", failed)
		left = false
	}
	return 0, left, nil
}
