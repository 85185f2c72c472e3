// Package auth says who calls the API, and what the caller may do: API keys, tokens of an issuer, roles, and the rate
// of requests of a tenant.
//
// Start with [Callers.Admit], which every operation calls. A keyring remembers the keys that worked lately, tokens
// verifies what an issuer signed, and rates enforces max_requests_per_second. Which role an operation needs is decided
// where the operation is described, in package httpapi. [SignIn] gets tokens of the issuer for visitors of the pages.
package auth
