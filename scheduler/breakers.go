package scheduler

import (
	"net"
	"net/url"
	"strings"

	"punctual/scheduler/breaker"
	"punctual/scheduler/delivery"
	"punctual/scheduler/domain"
)

// breakerKey names the circuit breaker of the host that a URL leads to. The scheme, the path and the spelling do not
// matter; the port does.
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

// hostAnswer is what a result says about its host. Any status proves that the host is there, and so does a connection
// on which the request was sent.
func hostAnswer(r delivery.Result) breaker.Answer {
	switch {
	case r.Status != 0:
		return breaker.Answered
	case r.Cancelled, r.Reason == delivery.ReasonBlockedAddress, r.Reason == delivery.Reason(domain.ReasonAuth):
		return breaker.Unknown
	case r.Reason == delivery.ReasonTLS, !r.Sent:
		return breaker.Unreachable
	}
	return breaker.Reached
}
