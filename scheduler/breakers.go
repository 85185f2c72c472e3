package scheduler

import (
	"net"
	"net/url"
	"strings"

	"punctual/scheduler/breaker"
	"punctual/scheduler/delivery"
)

// breakerKey names the circuit breaker of the host that a URL leads to, whatever the scheme, the path and
// the spelling.
func breakerKey(tenant int32, u *url.URL) breaker.Key {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	return breaker.Key{Tenant: tenant, Host: net.JoinHostPort(host, port)}
}

// hostAnswer is what a result says about its host. One that refuses a request is alive; only one that does
// not answer, or answers that it is broken, is to be spared.
func hostAnswer(r delivery.Result) breaker.Answer {
	if r.Cancelled {
		return breaker.Unknown
	}
	switch r.Reason {
	case delivery.ReasonConnect, delivery.ReasonTimeout, delivery.ReasonTLS, delivery.ReasonHTTP5xx:
		return breaker.Failed
	case delivery.ReasonBlockedAddress, delivery.Reason(ReasonAuth):
		return breaker.Unknown
	}
	return breaker.Answered
}
