package httpapi

import (
	"encoding/json"

	"github.com/google/uuid"

	"punctual/store/audit"
)

var exampleAudit = List[audit.Entry]{Data: []audit.Entry{{
	ID: uuid.MustParse("019ada51-20c4-7f0a-8b5d-3c1f9a7e6d42"), At: at("2026-11-28T18:00:00.5Z"),
	ActorKind: audit.Key, Actor: new("019a3c5e-0000-7c3e-9a44-0c6d5f0e8b11"), ActorName: new("deploy"),
	Address: new("203.0.113.7"), RequestID: new("7UBLQ5SRJ2ZTNBQFRQTMLNPKJE"),
	Action: audit.JobPause, Resource: "job", ResourceID: &exampleJobID, JobID: &exampleJobID,
	Name:   new("daily-invoice-gen"),
	Before: json.RawMessage(`{"version":7,"state":"active"}`),
	After: json.RawMessage(`{"version":8,"state":"paused","paused_until":"2026-12-01T09:00:00Z",` +
		`"note":"the warehouse moves"}`),
}}}
