package claim

import "github.com/google/uuid"

// ofTrace is SQL for the trace context that a run continues, whose row in run_data is d. A dated run, which has a key,
// only links to it.
const ofTrace = `CASE WHEN d.key IS NULL THEN coalesce(d.traceparent, '') ELSE '' END`

// Over tells the tracer of runs that this replica has ended without an attempt. Some may go on.
func (s *Claims) Over(runs ...uuid.UUID) { s.options.Tracer.Over(runs...) }
