package httpapi

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"punctual/httpapi/problem"
	"punctual/scheduler/forecast"
	"punctual/store"
	"punctual/store/cache"
	"punctual/store/jobs"
	"punctual/store/pg"
)

// Bounds on the work for forecasts. Waiting for the turn and computing together take less than requestTimeout.
const (
	forecastRemembered = time.Minute
	forecastTurn       = 8 * time.Second
	forecastTime       = 20 * time.Second
	mostForecasts      = 64
	forecastBytes      = 16 << 20
)

// forecastOf names a forecast: whose it is, and which window was asked for.
type forecastOf struct {
	tenant int32
	asked  askedWindow
}

type knownForecast struct {
	jobs.Forecast
	window forecast.Window
	until  time.Time
	asOf   time.Time // see pg.Reading; zero: unknown
}

// forecastBook computes forecasts, one at a time, and knows those of the last minute. A million jobs take Postgres and
// this replica some seconds, which the claims need more.
type forecastBook struct {
	compute func(context.Context, forecastOf) (*knownForecast, error)
	turn    chan struct{} // holds a value while a forecast is computed
	wait    time.Duration // for the turn

	mu      sync.Mutex
	known   *cache.Cache[forecastOf, *knownForecast]
	flights map[forecastOf]*flight
}

// flight is a forecast that is being computed, or that waits for its turn.
type flight struct {
	cancel  context.CancelFunc
	waiting int           // requests; under the book's lock
	done    chan struct{} // closed at the end, after known and err are set
	known   *knownForecast
	err     error
	reading *pg.Reading // nil: the primary computes
}

func newForecastBook(s *store.Store) *forecastBook {
	b := &forecastBook{
		turn: make(chan struct{}, 1), wait: forecastTurn, flights: map[forecastOf]*flight{},
		known: cache.New[forecastOf, *knownForecast](mostForecasts, forecastBytes),
	}
	b.compute = func(ctx context.Context, of forecastOf) (*knownForecast, error) {
		now, err := s.Now(ctx)
		if err != nil {
			return nil, err
		}
		w := of.asked.window(now)
		f, err := s.Jobs.Forecast(ctx, of.tenant, w)
		return &knownForecast{Forecast: f, window: w}, err
	}
	return b
}

// of returns a forecast: one of the last minute, the one that is being computed, or a new one. A forecast that nobody
// waits for any more is given up.
func (b *forecastBook) of(ctx context.Context, key forecastOf) (*knownForecast, error) {
	known, f := b.join(key, pg.ReadingOf(ctx))
	if known != nil {
		return known, nil
	}
	select {
	case <-f.done:
	case <-ctx.Done():
	}
	if b.leave(key, f) {
		<-f.done // so that nothing outlives the requests
	}
	select {
	case <-f.done:
		return f.known, f.err
	default:
		return nil, ctx.Err()
	}
}

// join returns a forecast that is known, or else the flight that the request now waits for.
func (b *forecastBook) join(key forecastOf, r *pg.Reading) (*knownForecast, *flight) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known, ok := b.known.Get(key); ok && time.Now().Before(known.until) {
		return known, nil
	}
	f := b.flights[key]
	if f == nil {
		f = &flight{done: make(chan struct{})}
		var own context.Context // no single request's: others may come to wait for it
		own, f.cancel = context.WithCancel(context.Background())
		if r != nil {
			f.reading = &pg.Reading{Since: r.Since}
			own = f.reading.Within(own)
		}
		b.flights[key] = f
		go b.fly(own, key, f)
	}
	f.waiting++
	return nil, f
}

// leave ends a request's wait for a flight. The last one to leave ends the flight.
func (b *forecastBook) leave(key forecastOf, f *flight) (last bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f.waiting--; f.waiting > 0 {
		return false
	}
	f.cancel()
	b.land(key, f)
	return true
}

// land takes a flight out of the book.
func (b *forecastBook) land(key forecastOf, f *flight) {
	if b.flights[key] == f {
		delete(b.flights, key)
	}
}

// fly computes a forecast when it has its turn.
func (b *forecastBook) fly(ctx context.Context, key forecastOf, f *flight) {
	defer close(f.done)
	f.known, f.err = b.inTurn(ctx, key)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.land(key, f); f.err == nil {
		if f.reading != nil {
			f.known.asOf = f.reading.AsOf()
		}
		f.known.until = time.Now().Add(forecastRemembered)
		b.known.Add(key, f.known, 4<<10+16*len(f.known.Slots))
	}
}

func (b *forecastBook) inTurn(ctx context.Context, key forecastOf) (known *knownForecast, err error) {
	late := time.NewTimer(b.wait)
	defer late.Stop()
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-late.C:
		return nil, busy("This replica is computing another forecast, and this one has waited for %s; try again.", b.wait)
	}
	defer func() { // it is not the goroutine of a request, which recoverer watches
		if cause := recover(); cause != nil {
			known, err = nil, fmt.Errorf("computing a forecast: panic: %v\n%s", cause, debug.Stack())
		}
	}()
	limited, cancel := context.WithTimeout(ctx, forecastTime)
	defer cancel()
	known, err = b.compute(limited, key)
	if err != nil && errors.Is(limited.Err(), context.DeadlineExceeded) {
		return nil, busy("The forecast takes longer than %s; ask for a shorter window.", forecastTime)
	}
	return known, err
}

func busy(format string, args ...any) *problem.Problem {
	return problem.New(problem.CodeBusy, fmt.Sprintf(format, args...)).With("Retry-After", "5")
}
