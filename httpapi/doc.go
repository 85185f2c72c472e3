// Package httpapi serves Punctual's HTTP API: JSON under /v1, its OpenAPI description, a documentation page
// that needs no other host, and the endpoints of operations (health, readiness, metrics).
//
// A request passes the middleware (id, log, metrics, recovery, origin check), then huma, which reads path,
// query and headers, and then a handler. Bodies are not read by huma but by decode, which knows three things
// that it does not: it reports a field of the wrong type together with everything the domain finds wrong with
// the others, it never repeats what was submitted, and it takes a definition's text as it was written.
//
// Before huma reads anything of a request, authorize finds out who it comes from (a caller: by keyring, which keeps keys
// that worked for two seconds, or by tokens), counts it (rates), and compares the caller's role with that of the operation
// in roleOf. The handler gets the id of the tenant it acts for, and writes to the store in the caller's name.
//
// Handlers return errors; errors.go is the only place that knows which status an error is. Every error leaves
// as application/problem+json with a code of the closed list in codes, and the id of the request.
package httpapi
