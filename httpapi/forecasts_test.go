package httpapi

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"punctual/httpapi/problem"
	"punctual/scheduler/forecast"
	"punctual/store/jobs"
)

// office computes forecasts of nothing, each when it is told to.
type office struct {
	*forecastBook
	mu      sync.Mutex
	begun   []int32 // the tenants whose forecasts were begun
	now     int     // how many are being computed
	most    int
	release chan error // an answer for each computation
}

func newOffice() *office {
	o := &office{forecastBook: newForecastBook(nil), release: make(chan error)}
	o.compute = func(ctx context.Context, of forecastOf) (*knownForecast, error) {
		o.mu.Lock()
		o.begun, o.now = append(o.begun, of.tenant), o.now+1
		o.most = max(o.most, o.now)
		o.mu.Unlock()
		defer func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.now--
		}()
		select {
		case err := <-o.release:
			if err != nil && err.Error() == "panic" {
				panic(err)
			}
			return &knownForecast{Forecast: jobs.Forecast{
				Forecast: forecast.Forecast{Jobs: int(of.tenant)}, AsOf: time.Now(),
			}}, err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return o
}

// ask asks for the forecast of a tenant. The function that it returns waits for the answer.
func (o *office) ask(ctx context.Context, tenant int32) func() (*knownForecast, error) {
	var known *knownForecast
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		known, err = o.of(ctx, forecastOf{tenant: tenant})
	}()
	synctest.Wait()
	return func() (*knownForecast, error) { <-done; return known, err }
}

func TestOneForecastIsComputedAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOffice()
		first, same, other := o.ask(t.Context(), 1), o.ask(t.Context(), 1), o.ask(t.Context(), 2)
		known := o.wantJobs(t, first, 1)
		if also, err := same(); err != nil || also != known {
			t.Errorf("%+v, %v, want %+v", also, err, known)
		}
		o.wantJobs(t, other, 2)
		if len(o.begun) != 2 || o.most != 1 {
			t.Errorf("%v were computed, up to %d at a time", o.begun, o.most)
		}
	})
}

func TestAForecastIsComputedAnewAfterAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOffice()
		first := o.wantJobs(t, o.ask(t.Context(), 1), 1)
		time.Sleep(forecastRemembered - time.Second)
		if again, err := o.of(t.Context(), forecastOf{tenant: 1}); err != nil || !again.AsOf.Equal(first.AsOf) {
			t.Errorf("%+v, %v", again, err)
		}
		time.Sleep(time.Second)
		if anew := o.wantJobs(t, o.ask(t.Context(), 1), 1); anew.AsOf.Equal(first.AsOf) {
			t.Errorf("as of %s, like before", anew.AsOf)
		}
	})
}

func TestTheWaitForAForecastIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOffice()
		began := time.Now()
		first, other := o.ask(t.Context(), 1), o.ask(t.Context(), 2)
		wantBusy(t, other, "another forecast, and this one has waited for 8s")
		if waited := time.Since(began); waited != forecastTurn {
			t.Errorf("it waited for %s", waited)
		}
		wantBusy(t, first, "takes longer than 20s")
		if took := time.Since(began); took != forecastTime || forecastTurn+forecastTime >= requestTimeout {
			t.Errorf("it took %s", took)
		}
	})
}

// wantJobs lets the computation end. It fails the test unless the answer is the forecast of so many jobs.
func (o *office) wantJobs(t *testing.T, answer func() (*knownForecast, error), jobs int) *knownForecast {
	t.Helper()
	o.release <- nil
	known, err := answer()
	if err != nil || known.Jobs != jobs {
		t.Errorf("%+v, %v", known, err)
	}
	return known
}

func wantBusy(t *testing.T, answer func() (*knownForecast, error), says string) {
	t.Helper()
	_, err := answer()
	var p *problem.Problem
	if !errors.As(err, &p) || p.Code != problem.CodeBusy || p.Header.Get("Retry-After") == "" ||
		!strings.Contains(p.Detail, says) {
		t.Errorf("%v, want busy: %s", err, says)
	}
}

func TestAForecastThatNobodyWaitsForIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOffice()
		one, leave := context.WithCancel(t.Context())
		two, leaveToo := context.WithCancel(t.Context())
		first, second := o.ask(one, 1), o.ask(two, 1)
		leave()
		if _, err := first(); !errors.Is(err, context.Canceled) || o.now != 1 {
			t.Errorf("%v; %d are computed", err, o.now)
		}
		leaveToo()
		if _, err := second(); !errors.Is(err, context.Canceled) || o.now != 0 {
			t.Errorf("%v; %d are computed", err, o.now)
		}
		o.wantJobs(t, o.ask(t.Context(), 1), 1)
	})
}

func TestAForecastThatFailsIsNotKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOffice()
		for _, cause := range []error{errors.New("the database is away"), errors.New("panic")} {
			answer := o.ask(t.Context(), 1)
			o.release <- cause
			if _, err := answer(); err == nil || !strings.Contains(err.Error(), cause.Error()) {
				t.Errorf("%v, want %v", err, cause)
			}
		}
		o.wantJobs(t, o.ask(t.Context(), 1), 1)
	})
}
