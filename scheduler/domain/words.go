package domain

import "slices"

// The closed lists of this package. The API's description, docs/reference/reasons.md and the constraints of the schema
// name the same values, and tests compare them all. A new constant has to be added here and documented there.

// Statuses returns all statuses of a run, in the order in which a run can pass through them.
func Statuses() []Status {
	return []Status{
		StatusPending, StatusRunning, StatusRetrying,
		StatusSucceeded, StatusDead, StatusSkipped, StatusCancelled,
	}
}

// Triggers returns everything that can create a run.
func Triggers() []Trigger {
	return []Trigger{
		TriggerSchedule, TriggerCatchup, TriggerManual, TriggerChain, TriggerEvent, TriggerReplay, TriggerBackfill,
		TriggerStep,
	}
}

// AttemptOutcomes returns all ends of an attempt, and AttemptInFlight for an attempt that has not ended.
func AttemptOutcomes() []AttemptOutcome {
	return []AttemptOutcome{
		AttemptSucceeded, AttemptFailed, AttemptTimedOut, AttemptLost, AttemptCancelled, AttemptInterrupted,
		AttemptInFlight,
	}
}

// ends lists the final statuses that each reason can lead to.
var ends = []struct {
	reason Reason
	in     []Status
}{
	{ReasonMissed, []Status{StatusSkipped}},
	{ReasonPaused, []Status{StatusSkipped}},
	{ReasonOverlap, []Status{StatusSkipped}},
	{ReasonLimit, []Status{StatusSkipped}},
	{ReasonReplaced, []Status{StatusCancelled}},
	{ReasonCancelled, []Status{StatusCancelled}},
	{ReasonJobDeleted, []Status{StatusSkipped, StatusCancelled}},
	{ReasonExpired, []Status{StatusSkipped, StatusDead}},
	{ReasonAuth, []Status{StatusDead}},
	{ReasonUnreachable, []Status{StatusDead}},
	{ReasonTimeout, []Status{StatusDead, StatusCancelled, StatusSkipped}},
	{ReasonConnect, []Status{StatusDead}},
	{ReasonTLS, []Status{StatusDead}},
	{ReasonBlockedAddress, []Status{StatusDead}},
	{ReasonHTTP4xx, []Status{StatusDead}},
	{ReasonHTTP5xx, []Status{StatusDead}},
	{ReasonRedirect, []Status{StatusDead}},
	{ReasonGone, []Status{StatusDead}},
	{ReasonFailed, []Status{StatusDead}},
	{ReasonLost, []Status{StatusDead}},
	{ReasonPoison, []Status{StatusDead}},
	{ReasonSilent, []Status{StatusDead}},
	{ReasonUpstreamFailed, []Status{StatusSkipped, StatusDead}},
	{ReasonRejected, []Status{StatusDead}},
	{ReasonApprovalExpired, []Status{StatusDead}},
}

// Reasons returns all reasons.
func Reasons() []Reason {
	list := make([]Reason, len(ends))
	for i, e := range ends {
		list[i] = e.reason
	}
	return list
}

// ReasonsOf returns the reasons for which a run can end in a status.
func ReasonsOf(status Status) []Reason {
	var list []Reason
	for _, e := range ends {
		if slices.Contains(e.in, status) {
			list = append(list, e.reason)
		}
	}
	return list
}
