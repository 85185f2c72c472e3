package dashboard

import (
	"net/url"

	"punctual/httpapi/client"
	"punctual/store/audit"
)

// change is an entry of the audit log, with what differs.
type change struct {
	audit.JobChange
	Address     *string // nil: it is not known, or not for everybody who may read the job
	Differences []difference
}

// difference is one field that a change set.
type difference struct {
	Field, Before, After string
}

func changesOf[T any](entries []T, of func(T) change) []change {
	changes := make([]change, len(entries))
	for i, e := range entries {
		changes[i] = of(e)
		changes[i].Differences = changedIn(changes[i].JobChange)
	}
	return changes
}

// Who says who made a change.
func (c change) Who() string {
	switch {
	case c.ActorName != nil:
		return string(c.ActorKind) + " " + *c.ActorName
	case c.Actor != nil:
		return who(string(c.ActorKind) + " " + *c.Actor)
	case c.ActorKind == audit.System:
		return "Punctual itself"
	}
	return who(string(c.ActorKind))
}

// auditView is the audit log.
type auditView struct {
	Changes []change
	Next    string
	Filter  url.Values
}

func (v *visit) audit() error {
	query := v.filters(nil,
		"action", "actor", "key", "resource", "resource_id", "name", "job", "from", "to", "cursor")
	list, err := call(v, client.AuditLog, query)
	return v.shows(err, "audit", "Audit log", auditView{
		changesOf(list.Data, func(e audit.Entry) change { return change{JobChange: e.JobChange, Address: e.Address} }),
		text(list.NextCursor), query,
	})
}
