package dashboard

// eventNames is the list of the names of events.
func (v *visit) eventNames() error {
	list, err := v.api.EventNames(v.ctx(), filtered(v.r.URL.Query(), "cursor"))
	return v.shows(err, "events", "Events", list)
}

// eventsOfName is the list of the events of a name.
func (v *visit) eventsOfName() error {
	list, err := v.api.Events(v.ctx(), v.part("name"), filtered(v.r.URL.Query(), "cursor"))
	return v.shows(err, "emitted", v.part("name"), list)
}

// event is an event with a page of its runs.
func (v *visit) event() error {
	e, err := v.api.Event(v.ctx(), v.part("name"), v.part("event"), filtered(v.r.URL.Query(), "cursor"))
	return v.shows(err, "event", e.Name, e)
}
