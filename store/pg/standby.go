package pg

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"punctual/store/session"
)

// Standby says how to reach a hot standby of the database, to which reads of the past may go.
type Standby struct {
	URL          string        // postgres:// URL or key=value DSN of one server; empty: there is none
	PasswordFile string        // see session.Database
	MaxStaleness time.Duration // how far behind the primary it may be; 0: DefaultMaxStaleness
}

// DefaultMaxStaleness is five times as long as a replica takes between two heartbeats, which the standby replays.
const DefaultMaxStaleness = 10 * time.Second

const (
	// standbyPatience is how long a read waits for a standby that does not answer, before the primary is asked.
	standbyPatience = 2 * time.Second
	// leftAlone is how long a standby that cannot be used is not asked. Then one read tries it.
	leftAlone = 30 * time.Second
	// clockTrusted is how long the primary's clock is told from this machine's, after it was read.
	clockTrusted = 30 * time.Second
)

// Answer says who has answered a read of the past, and why it was not the standby.
type Answer int

// The answers.
const (
	ByStandby Answer = iota
	Behind           // the standby has not replayed what the reader has to see
	Stale            // the standby is older than it may be
	Unknown          // the standby does not know what is asked for, or it is not final there
	Failed           // the read failed at the standby, such as by a conflict with recovery
	Unusable         // the standby is left alone, or was found to be unusable just now
	answers
)

// answerNames are the names of the answers in the metrics.
var answerNames = [answers]string{
	ByStandby: "standby", Behind: "behind", Stale: "stale", Unknown: "unknown", Failed: "failed", Unusable: "unusable",
}

// standby is the standby as this process knows it. Safe for concurrent use.
type standby struct {
	db     *DB
	pool   *pgxpool.Pool
	most   time.Duration
	counts [answers]atomic.Int64
	lag    atomic.Int64 // time.Duration, when it was last asked

	mu       sync.Mutex
	unusable bool
	until    time.Time // until then it is left alone

	primary struct {
		reading sync.Mutex
		known   atomic.Pointer[primary]
	}
}

// primary is what the standby is compared with.
type primary struct {
	database, system string
	clock            time.Time
	read             time.Time // of this machine's clock
}

// NotAStandbyError says that the read database is no standby of the database.
type NotAStandbyError struct{ Reason string }

func (e *NotAStandbyError) Error() string { return e.Reason }

func (db *DB) openStandby(ctx context.Context) error {
	c := db.config.Standby
	if c.URL == "" {
		return nil
	}
	config, err := session.Database{URL: c.URL, PasswordFile: c.PasswordFile}.Config()
	if err != nil {
		return fmt.Errorf("read database: %w", err)
	}
	s := &standby{db: db, most: c.MaxStaleness}
	if s.most == 0 {
		s.most = DefaultMaxStaleness
	}
	config.MaxConns, config.AfterConnect = db.config.MaxConns, s.connected
	config.ConnConfig.ConnectTimeout = standbyPatience
	db.endpoints.observe(&config.ConnConfig.Config)
	unnamed(config.ConnConfig)
	if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	db.standby = s
	return nil
}

// connected prepares a new connection. It fails if that leads to another database.
func (s *standby) connected(ctx context.Context, conn *pgx.Conn) error {
	registerTypes(conn)
	s.db.config.Sealer.Register(conn)
	if err := session.Settle(ctx, conn); err != nil {
		return err
	}
	if err := s.db.endpoints.ask(ctx, conn); err != nil {
		return err
	}
	var database, system string
	if err := conn.QueryRow(ctx, `SELECT current_database(), punctual.system_identifier()`).
		Scan(&database, &system); err != nil {
		return fmt.Errorf("asking which database this is: %w", err)
	}
	if p := s.primary.known.Load(); database != p.database || system != p.system {
		return &NotAStandbyError{fmt.Sprintf("it is database %s of system %s, and must be %s of %s", database, system,
			p.database, p.system)}
	}
	return nil
}

// knows reads the primary's clock and identity from a pool, if that is due. It returns false if they are not known.
func (s *standby) knows(ctx context.Context, pool *Pool) bool {
	known := s.primary.known.Load()
	if known != nil && (time.Since(known.read) < clockTrusted || !s.primary.reading.TryLock()) {
		return true
	}
	if known == nil {
		s.primary.reading.Lock()
	}
	defer s.primary.reading.Unlock()
	if now := s.primary.known.Load(); now != known {
		return true
	}
	p := primary{read: time.Now()} // before the query: the clock is rather ahead than behind
	err := pool.QueryRow(ctx, `
		SELECT clock_timestamp(), current_database(), punctual.system_identifier()`).Scan(&p.clock, &p.database, &p.system)
	if err == nil {
		s.primary.known.Store(&p)
	}
	return err == nil || known != nil
}

// now returns the primary's time.
func (s *standby) now() time.Time {
	p := s.primary.known.Load()
	if p == nil {
		return time.Now()
	}
	return p.clock.Add(time.Since(p.read))
}

// seen is what the standby had replayed before a read began.
type seen struct {
	at   Position
	asOf time.Time // commit of the last transaction
}

// unfit is why the primary has to answer.
type unfit struct{ answer Answer }

func (u *unfit) Error() string { return "the standby does not answer: " + answerNames[u.answer] }

// answer reads at the standby, or from the pool what is not known of the primary yet. An error means that the primary
// has to answer.
func (s *standby) answer(
	ctx context.Context, p *Pool, since Position, read func(context.Context, conns) error,
) (seen seen, err error) {
	if !s.knows(ctx, p) || !s.asked() {
		s.counts[Unusable].Add(1)
		return seen, &unfit{Unusable}
	}
	if end, bounded := ctx.Deadline(); bounded { // the primary needs some of the time
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
	}
	for range 2 {
		var again bool
		if seen, again, err = s.try(ctx, since, read); err == nil || !again {
			break
		}
	}
	var why *unfit
	switch {
	case err == nil:
		s.counts[ByStandby].Add(1)
	case errors.As(err, &why):
		s.counts[why.answer].Add(1)
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrUnfinal):
		s.counts[Unknown].Add(1)
	default:
		s.counts[Failed].Add(1)
	}
	return seen, err
}

// try is one attempt at a read. again is true if another may succeed: recovery has cancelled this one, or its
// connection was an old one.
func (s *standby) try(
	ctx context.Context, since Position, read func(context.Context, conns) error,
) (seen seen, again bool, err error) {
	asking, cancel := context.WithTimeout(ctx, standbyPatience)
	defer cancel()
	conn, err := s.pool.Acquire(asking)
	if err != nil {
		if stat := s.pool.Stat(); stat.AcquiredConns() == stat.MaxConns() || ctx.Err() != nil {
			return seen, false, err // it is busy, or the caller is gone
		}
		s.leave(err)
		return seen, false, &unfit{Unusable}
	}
	defer conn.Release()
	seen, err = s.look(asking, conn, since)
	if _, not := errors.AsType[*NotAStandbyError](err); not {
		s.leave(err)
		return seen, false, &unfit{Unusable}
	}
	if _, is := errors.AsType[*unfit](err); is {
		return seen, false, err
	}
	if err == nil {
		s.found()
		err = read(ctx, conn)
	} else if ctx.Err() == nil && asking.Err() != nil { // it hangs
		s.leave(err)
		return seen, false, &unfit{Unusable}
	}
	return seen, Away(err) && ctx.Err() == nil, err
}

// look asks what the standby has replayed. Statements after it see at least that.
func (s *standby) look(ctx context.Context, conn *pgxpool.Conn, since Position) (seen seen, err error) {
	var recovers, reached bool
	var at *Position
	var asOf *time.Time
	err = conn.QueryRow(ctx, `
		SELECT pg_is_in_recovery(), coalesce(pg_last_wal_replay_lsn() >= nullif($1::text, '')::pg_lsn, true),
		       pg_last_wal_replay_lsn()::text, pg_last_xact_replay_timestamp()`, string(since)).
		Scan(&recovers, &reached, &at, &asOf)
	switch {
	case err != nil:
		return seen, err
	case !recovers || at == nil:
		return seen, &NotAStandbyError{"it is not in recovery"}
	case asOf == nil:
		return seen, &unfit{Stale} // it has just started
	}
	lag := s.now().Sub(*asOf)
	s.lag.Store(int64(lag))
	switch {
	case lag > s.most:
		return seen, &unfit{Stale}
	case !reached:
		return seen, &unfit{Behind}
	}
	seen.at, seen.asOf = *at, *asOf
	return seen, nil
}

// asked reports whether the standby is to be asked. Once it has been left alone for long enough, one read asks it.
func (s *standby) asked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.unusable {
		return true
	}
	now := time.Now()
	over := now.After(s.until)
	if over {
		s.until = now.Add(leftAlone)
	}
	return over
}

// leave leaves the standby alone for a while.
func (s *standby) leave(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = time.Now().Add(leftAlone)
	if !s.unusable {
		s.unusable = true
		s.db.config.Log.Warn("the read database cannot be used: the primary answers instead",
			"error", strings.ReplaceAll(why.Error(), "\n", " "), "tried_again_every", leftAlone.String())
	}
}

// found notes that the standby can be used.
func (s *standby) found() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unusable {
		s.unusable = false
		s.db.config.Log.Info("the read database can be used again")
	}
}

// StandbyState is how reads of the past went so far.
type StandbyState struct {
	Usable  bool
	Lag     time.Duration // behind the primary, when it was last asked
	Answers map[string]int64
}

// StandbyState returns how reads of the past went so far; nil: there is no standby.
func (db *DB) StandbyState() *StandbyState {
	s := db.standby
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	state := &StandbyState{Usable: !s.unusable, Lag: time.Duration(s.lag.Load()), Answers: map[string]int64{}}
	for a, name := range answerNames {
		state.Answers[name] = s.counts[a].Load()
	}
	return state
}
