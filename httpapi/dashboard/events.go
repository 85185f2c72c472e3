package dashboard

import (
	"punctual/httpapi"
)

// eventNamesView is the list of the names of events.
type eventNamesView struct {
	Names []httpapi.EventName
	Next  string
}

func (v *visit) eventNames() error {
	list, err := v.api.EventNames(v.ctx(), filtered(v.r.URL.Query(), "cursor"))
	if err != nil {
		return err
	}
	return v.show("events", "Events", eventNamesView{list.Data, text(list.NextCursor)})
}

// eventsView is the list of the events of a name.
type eventsView struct {
	Name   string
	Events []httpapi.Event
	Next   string
}

func (v *visit) eventsOfName() error {
	name := v.part("name")
	list, err := v.api.Events(v.ctx(), name, filtered(v.r.URL.Query(), "cursor"))
	if err != nil {
		return err
	}
	return v.show("emitted", name, eventsView{name, list.Data, text(list.NextCursor)})
}

// eventView is an event with a page of its runs.
type eventView struct {
	httpapi.EventDetails
	Next string
}

// Text is the body of the event, as people read it.
func (e eventView) Text() string { return indented(e.Body) }

func (v *visit) event() error {
	e, err := v.api.Event(v.ctx(), v.part("name"), v.part("event"), filtered(v.r.URL.Query(), "cursor"))
	if err != nil {
		return err
	}
	return v.show("event", e.Name, eventView{e, text(e.NextCursor)})
}
