package dashboard

import "punctual/httpapi/client"

// eventNames is the list of the names of events.
func (v *visit) eventNames() error {
	list, err := call(v, client.EventNames, filtered(v.r.URL.Query(), "cursor"))
	return v.shows(err, "events", "Events", list)
}

// eventsOfName is the list of the events of a name.
func (v *visit) eventsOfName() error {
	list, err := call(v, client.Events, filtered(v.r.URL.Query(), "cursor"), v.part("name"))
	return v.shows(err, "emitted", v.part("name"), list)
}

// event is an event with a page of its runs.
func (v *visit) event() error {
	e, err := call(v, client.Event, filtered(v.r.URL.Query(), "cursor"), v.part("name"), v.part("event"))
	return v.shows(err, "event", e.Name, e)
}
