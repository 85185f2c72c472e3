// Package httpapi serves Punctual's HTTP API: JSON under /v1, its OpenAPI description, a documentation page that
// loads nothing from other hosts, and the endpoints of operations (health, readiness, metrics).
//
// A request passes the middleware (id, log, metrics, recovery, origin check). Then package api asks package auth for
// its caller, by an API key or a token; auth counts the request, and compares the caller's role with the operation's
// role. Then huma reads the path, query and headers, package body reads the body, and a handler is called.
// The handler gets the id of the tenant that the caller acts for. What it writes to the store is recorded as the
// caller's.
//
// Handlers return errors; only package api knows which status an error has. Every error is answered as
// application/problem+json with the request's id and a code of the closed list in package problem.
package httpapi
