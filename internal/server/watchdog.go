package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"punctual/scheduler"
	"punctual/store"
)

const (
	// watchEvery is how often a replica looks whether the watchdog is to be called.
	watchEvery = 20 * time.Second
	// looksLately is how long ago a replica that claims has last looked for due work, at most.
	looksLately = 10 * time.Second
	// watchTimeout bounds a call.
	watchTimeout = 10 * time.Second
)

// watchdog returns the chore of calling c.WatchdogURL, if there is one. Looked says when this replica last looked for
// due work, unless its claims or heartbeats fail. A replica that does not look does not call, so that the calls stop
// when no replica claims: because there is none, the database is away or broken, or the deployment is frozen.
func watchdog(c Config, db *store.Store, looked func() time.Time) []scheduler.Chore {
	if c.WatchdogURL == "" {
		return nil
	}
	client := &http.Client{Timeout: watchTimeout}
	call := func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.WatchdogURL, nil)
		if err != nil {
			return err
		}
		request.Header.Set("User-Agent", "punctual/"+c.Version)
		response, err := client.Do(request)
		if failed := new(url.Error); errors.As(err, &failed) {
			return failed.Err // its URL is as good as a password
		}
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode >= http.StatusMultipleChoices {
			return fmt.Errorf("it answered %s", response.Status)
		}
		return nil
	}
	return []scheduler.Chore{{
		Name: "watchdog", Does: "calling the watchdog", Every: watchEvery,
		Batch: func(ctx context.Context) (time.Duration, bool, error) {
			if time.Since(looked()) > looksLately {
				return 0, false, nil
			}
			return 0, false, db.CallWatchdog(ctx, call)
		},
	}}
}
