package httpapi

import (
	"fmt"

	"punctual/scheduler"
	"punctual/scheduler/delivery"
)

// forbidden returns what is wrong with the URLs of a definition that name an address which must not be called. It is for
// its author, who hears of it at once and not with the first run; every connection is judged again when it is made.
// URLs that are no URLs are others' to report.
func (s *server) forbidden(tenant int32, at string, d scheduler.Definition) []FieldError {
	if s.Guard == nil {
		return nil
	}
	var fields []FieldError
	judge := func(field, raw string) {
		u, err := scheduler.ParseTarget(raw)
		if err != nil {
			return
		}
		if err := s.Guard.For(tenant).CheckTarget(u); err != nil {
			fields = append(fields, FieldError{at + "." + field, err.Error()})
		}
	}
	judge("target.url", d.Target.URL)
	return append(fields, s.forbiddenNotify(tenant, at, d.Notify)...)
}

// forbiddenNotify is forbidden for those who are told.
func (s *server) forbiddenNotify(tenant int32, at string, list []scheduler.Notify) []FieldError {
	if s.Guard == nil {
		return nil
	}
	var fields []FieldError
	for i, n := range list {
		u, err := delivery.CheckURL(n.URL)
		if err != nil {
			continue
		}
		if err := s.Guard.For(tenant).CheckTarget(u); err != nil {
			fields = append(fields, FieldError{fmt.Sprintf("%s.notify[%d].url", at, i), err.Error()})
		}
	}
	return fields
}
