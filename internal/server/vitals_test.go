package server

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"punctual/scheduler"
)

// What passes by itself, or meets one row only, takes no replica out of its load balancer.
func TestOnlyWhatDoesNotPassMakesAReplicaUnready(t *testing.T) {
	refused := func(code, message string) error {
		return &pgconn.PgError{Severity: "ERROR", Code: code, Message: message}
	}
	unloadable := refused("58P01", `could not load library "/usr/lib/plpgsql.so": undefined symbol: x`)
	for name, c := range map[string]struct {
		path scheduler.Path
		err  error
		says string // empty: it is ready
	}{
		"a permission":               {scheduler.PathClaims, refused("42501", "permission denied"), "SQLSTATE 42501"},
		"a library":                  {scheduler.PathClaims, unloadable, "restart Postgres"},
		"a lock":                     {scheduler.PathClaims, refused("55P03", "lock timeout"), ""},
		"a timeout":                  {scheduler.PathClaims, errors.New("deadline exceeded"), ""},
		"too many connections":       {scheduler.PathClaims, refused("53300", "too many"), ""},
		"one row":                    {scheduler.PathClaims, refused("22P02", "invalid input"), ""},
		"heartbeats that time out":   {scheduler.PathHeartbeats, errors.New("deadline exceeded"), "heartbeats have failed since"},
		"heartbeats without plpgsql": {scheduler.PathHeartbeats, unloadable, "SQLSTATE 58P01: Postgres cannot load"},
	} {
		var v scheduler.Vitals
		v.Begin()
		v.Note(c.path, c.err, time.Now().Add(-time.Hour))
		err := sound(&v)(t.Context())
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "/usr")):
			t.Errorf("%s: %v", name, err)
		}
		v.Note(c.path, nil, time.Now())
		if err := sound(&v)(t.Context()); err != nil {
			t.Errorf("%s, after a success: %v", name, err)
		}
	}
}

// Whoever waits for readiness may at once create a job that names a queue of the replica.
func TestAReplicaIsReadyOnceItsQueuesAreRegistered(t *testing.T) {
	var v scheduler.Vitals
	if err := sound(&v)(t.Context()); err == nil || !strings.Contains(err.Error(), "not registered yet") {
		t.Errorf("before: %v", err)
	}
	v.Begin()
	if err := sound(&v)(t.Context()); err != nil {
		t.Errorf("after: %v", err)
	}
}
