// Package trace exports runs as spans of OpenTelemetry. A run is a trace:
//
//	run ─────────────────────────────── from when it was due until it ended
//	 ├─ wait                            until its first request was sent
//	 ├─ attempt                         a request and its answer
//	 │   └─ work                        what the target did after it had answered 202
//	 └─ attempt
//
// The ids of all spans are derived from the run and the fencing token. So whichever replica ends an attempt or a run
// exports its span, and needs nothing that another has in memory. What is exported waits in a queue and is dropped when
// that is full: no attempt, outcome or stop waits for the collector.
package trace
