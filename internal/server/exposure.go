package server

import (
	"context"
	"fmt"
	"net"

	"punctual/store"
)

// FirstKey is the command that creates the first key of a deployment.
const FirstKey = "punctual keys create --tenant default --role operator --name first"

// CheckExposure returns an error if an API without authentication would listen where other machines can reach it,
// unless insecure allows that.
func CheckExposure(listen string, noAuth, insecure bool) error {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("--listen %q: write host:port, such as 127.0.0.1:8080", listen)
	}
	ip := net.ParseIP(host)
	if !noAuth || insecure || host == "localhost" || (ip != nil && ip.IsLoopback()) {
		return nil
	}
	return fmt.Errorf("--listen %s: without authentication only loopback addresses such as 127.0.0.1:8080 are allowed; "+
		"leave out --auth=none and make a key with `%s`, on the same database; "+
		"or give --insecure-no-auth: then every caller that can reach the address may do anything", listen, FirstKey)
}

// warn logs what callers and targets cannot do: reach this replica at its public address, and authenticate before there
// is a first key. It also warns of a lock table that is too small.
func (c Config) warn(ctx context.Context, db *store.Store, public string, reachable bool) {
	if !reachable {
		c.Log.Warn("targets of jobs with completion async get a callback URL that they cannot reach; give --public-url",
			"address", public)
	}
	db.WarnOfLocks(ctx)
	if c.NoAuth || c.OIDC.Issuer != "" {
		return
	}
	if found, err := db.Tenants.HasKeys(ctx); err == nil && !found {
		c.Log.Warn("no API key is valid, so no caller can use the API; create one in the same database", "command",
			FirstKey)
	}
}
