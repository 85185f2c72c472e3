// Package delivery sends one attempt of a job, which is one HTTP request, and says how it ended.
//
// A [Client] is created once per replica and shared by all workers. [Client.Send] returns when the exchange is over:
// the whole answer is read, the timeout is reached, the connection has failed, or the caller's context is cancelled.
// It never returns an error; every outcome is a [wire.Result].
//
//	                 2xx, whole body read ────────────► success          Reason ""
//	request ──┬────► 3xx, 4xx, 5xx ───────────────────► failure          Reason redirect, http_4xx, http_5xx
//	          ├────► no answer, or a broken one ──────► failure          Reason connect, tls, blocked_address
//	          ├────► the job's timeout ───────────────► failure          Reason timeout
//	          └────► the caller's context ends ───────► neither          Cancelled
//
// # One request on the wire
//
// An attempt is exactly one request, whatever the method, the headers and the connection do. [net/http.Transport] keeps
// no such promise: when a reused connection ends unanswered, it sends a GET again, and also anything with an
// Idempotency-Key and a body that it can rewind. So the client here writes requests by itself, and leaves to net/http
// and crypto/tls what they are best at: every answer is read by [net/http.ReadResponse].
//
// An attempt is one goroutine. It takes an idle connection or makes one, has the request written by one call, and reads
// the answer. (A large body is written by a second goroutine meanwhile, so that a target that refuses it unread is
// heard.) Nothing else writes to the connection, and nothing writes a request again:
//
//	connection ──► write ──┬─ some was taken ────────────► the answer, or a failure: the attempt is over
//	     ▲                 │
//	     └─────────────────┴─ nothing was taken, and the connection was a reused one
//
// When an attempt is over, [wire.Result.Sent] is true unless nothing of the request was written.
//
// An idle connection is looked at right before it is used, and dropped if it has ended or the target has said anything.
// It may end all the same while the request is on its way, so [wire.Request.Fresh] is for attempts that must not risk
// that. A connection becomes idle only if the answer was read to its end, nothing came after it, all of the request was
// written, and neither side asked for an end. HTTP/2 is not offered, because its client repeats streams that the peer
// has already seen.
//
// # Forbidden addresses
//
// [Config.Guard] judges every address before it is connected to, after the name was resolved (package guard). The
// rules are the tenant's, and connections are pooled by rules: a tenant never gets another tenant's connection to an
// address that it may not call itself. With [Config.Proxy] a connection is a tunnel through the proxy, and the target
// is judged before the proxy is asked.
//
// # Hostile targets
//
// The timeout covers dialling, the TLS handshake, writing, waiting and reading. Response headers, body and kept
// excerpt are capped. Nothing is decompressed, redirects are not followed, there are no cookies, and the
// environment's proxy settings are ignored. An attempt that ends leaves no goroutine and no descriptor behind, except
// connections that may be reused, for a few seconds. What would end a line in a header or URL is never written.
package delivery
