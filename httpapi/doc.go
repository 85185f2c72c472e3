// Package httpapi serves Punctual's HTTP API: JSON under /v1, its OpenAPI description, a documentation page that
// loads nothing from other hosts, and the endpoints of operations (health, readiness, metrics).
//
// A request passes the middleware (id, log, metrics, recovery, origin check). Then huma reads its path, query and
// headers, and calls a handler. Bodies are read by decode instead of huma, for three reasons. It reports a field of
// the wrong type together with everything the domain finds wrong with the others. It never repeats what was
// submitted. It takes a definition's text as it was written.
//
// Before huma reads a request, authorize asks package auth for its caller: by an API key or a token. Package auth
// counts the request, and compares the caller's role with the operation's role in roleOf.
// The handler gets the id of the tenant that the caller acts for. What it writes to the store is recorded as the
// caller's.
//
// Handlers return errors; only errors.go knows which status an error has. Every error is answered as
// application/problem+json with the request's id and a code of the closed list in package problem.
package httpapi
