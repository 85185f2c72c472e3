package httpapi

import (
	"fmt"

	"punctual/scheduler"
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
	for i, n := range d.Notify {
		judge(fmt.Sprintf("notify[%d].url", i), n.URL)
	}
	return fields
}
