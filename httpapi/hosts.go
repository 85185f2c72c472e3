package httpapi

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"punctual/httpapi/problem"
)

// notARun refuses requests that a run of a job sends. The guard keeps runs from the API of their own replica. It
// cannot know the addresses of other replicas and of the load balancer in front of them. But the requests of runs
// carry headers that no job can set or leave out.
func notARun(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Punctual-Fencing-Token") != "" && r.Header.Get("Punctual-Attempt") != "" {
			problem.New(problem.CodeCallback,
				"The request comes from a run of a job, and runs may not call Punctual's API.").Write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// onlyHost refuses requests to names that are not this server's. It is used without authentication: a page may have
// its own name resolve to this machine, and then its requests are of the same origin for a browser. public is the
// name that proxies on this machine pass on; it may be empty.
func onlyHost(public string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if host := hostname(r.Host); !strings.EqualFold(host, public) && !standsForItself(host) {
				problem.New(problem.CodeHost, "Authentication is off, so the server answers only requests to localhost, "+
					"to an IP address, or to the host of --public-url.").Write(w)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// hostname returns a Host header without its port.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.Trim(host, "[]")
}

// standsForItself reports whether a host cannot be made to resolve to somebody else's address.
func standsForItself(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil || strings.EqualFold(host, "localhost") || host == ""
}
