package dashboard

import (
	"encoding/json"
	"maps"
	"net/url"
	"slices"

	"punctual/store/audit"
)

// change is an entry of the audit log, with what differs.
type change struct {
	audit.Entry
	Differences []difference
}

// difference is one field that a change set.
type difference struct {
	Field, Before, After string
}

func changesOf(entries []audit.Entry) []change {
	changes := make([]change, len(entries))
	for i, e := range entries {
		changes[i] = change{e, changedIn(e)}
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

func empty(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// differences lists the fields in which two JSON values differ.
func differences(before, after json.RawMessage) []difference {
	was, is := map[string]string{}, map[string]string{}
	flatten(was, "", before)
	flatten(is, "", after)
	all := maps.Clone(was)
	maps.Copy(all, is)
	var found []difference
	for _, field := range slices.Sorted(maps.Keys(all)) {
		if was[field] != is[field] {
			found = append(found, difference{field, was[field], is[field]})
		}
	}
	return found
}

// flatten writes every value of a JSON document under its path, such as schedule.cron.
func flatten(into map[string]string, path string, raw json.RawMessage) {
	var object map[string]json.RawMessage
	if empty(raw) {
		return
	}
	if json.Unmarshal(raw, &object) != nil {
		into[path] = unquoted(raw)
		return
	}
	for name, value := range object {
		at := name
		if path != "" {
			at = path + "." + name
		}
		flatten(into, at, value)
	}
}

// auditView is the audit log.
type auditView struct {
	Changes []change
	Next    string
	Filter  url.Values
}

func (v *visit) audit() error {
	query := filtered(v.r.URL.Query(), "action", "actor", "resource", "resource_id", "name", "job", "from", "to", "cursor")
	list, err := v.api.AuditLog(v.ctx(), query)
	if err != nil {
		return err
	}
	return v.show("audit", "Audit log", auditView{changesOf(list.Data), text(list.NextCursor), query})
}
