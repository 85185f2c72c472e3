package httpapi

import (
	"encoding/json"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/events"
)

// Examples of the documentation: the pages of events.
var (
	exampleEmitInput = json.RawMessage(`{"body":{"invoice":17,"country":"DE","paid":true}}`)
	exampleEventID   = uuid.MustParse("019ada6b-9c80-7b21-8f6e-1d2c3b4a5968")
	exampleEmitted   = Emitted{ID: exampleEventID, Name: "invoice.paid", Subscribed: 3}
	exampleEventName = EventName{
		Name: "invoice.paid", Subscribers: 3, LastID: &exampleEventID, LastAt: new(moment("2026-12-01T15:20:11.803Z")),
		Events: 120, Runs: 240,
	}
)

func exampleEvent() Event {
	return showEvent(events.Event{
		ID: exampleEventID, Name: "invoice.paid", EmittedAt: moment("2026-12-01T15:20:11.803Z"),
		EmittedBy: "submitter key shop (punctual_3fPq)", BodyBytes: new(42), Subscribed: 3, Made: 1, Unmatched: 2,
		EndedAt: new(moment("2026-12-01T15:20:11.841Z")),
	})
}

func exampleEventDetails() EventDetails {
	return EventDetails{
		Event: exampleEvent(), Body: json.RawMessage(`{"invoice":17,"country":"DE","paid":true}`),
		Statuses: map[domain.Status]int{domain.StatusSucceeded: 1},
		Runs: []events.EventRun{{
			ID: uuid.MustParse("019ada6b-9c80-8f33-9a52-7c1e0d4b6a21"), Job: "book-payment",
			Status: domain.StatusSucceeded, FinishedAt: new(moment("2026-12-01T15:20:12.034Z")),
		}},
	}
}
