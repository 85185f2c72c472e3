package server

import (
	"context"
	"fmt"
	"log/slog"
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

// warnOfNoKeys logs how to create the first key if there is none.
func warnOfNoKeys(ctx context.Context, db *store.Store, log *slog.Logger) {
	if found, err := db.HasKeys(ctx); err == nil && !found {
		log.Warn("no API key is valid, so no caller can use the API; create one in the same database", "command",
			FirstKey)
	}
}
