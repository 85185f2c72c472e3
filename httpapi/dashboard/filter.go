package dashboard

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"punctual/httpapi/client"
)

// chip is a filter that is on and has no field of its own in the form.
type chip struct {
	Name, Value string
	Without     string // the address of the page without it
}

// Text says what the filter selects.
func (c chip) Text() string {
	switch {
	case c.Value == "true":
		return c.Name
	case c.Name == "from" && !c.At().IsZero():
		return "since"
	case c.Name == "to" && !c.At().IsZero():
		return "before"
	}
	return strings.ReplaceAll(c.Name, "_", " ") + " " + c.Value
}

// At is the instant of the filter; the zero time if it has none.
func (c chip) At() time.Time {
	at, _ := time.Parse(time.RFC3339, c.Value)
	return at
}

// chips returns the filters of a page that are on, without those that have fields in its form.
func chips(page string, filter url.Values, fields []string) (on []chip) {
	address, err := url.Parse(page)
	if err != nil {
		return nil
	}
	for name, values := range filter {
		if slices.Contains(fields, name) || name == "cursor" || name == "view" || name == "limit" {
			continue
		}
		for i, value := range values {
			left := address.Query()
			left.Del("cursor")
			if left[name] = slices.Delete(slices.Clone(values), i, i+1); len(values) == 1 {
				left.Del(name)
			}
			on = append(on, chip{name, value, address.Path + "?" + left.Encode()})
		}
	}
	slices.SortFunc(on, func(a, b chip) int { return strings.Compare(a.Name+" "+a.Value, b.Name+" "+b.Value) })
	return on
}

// pinned returns the address of a list as it is now: without what comes later.
func pinned(page string) string {
	if u, err := url.Parse(page); err != nil || u.Query().Has("to") || u.Query().Has("cursor") {
		return page
	}
	return query(page, "to", client.Instant(time.Now().UTC().Truncate(time.Second).Add(time.Second)))
}

// filtered keeps the named parameters of a query that have a value.
func filtered(query url.Values, names ...string) url.Values {
	kept := url.Values{}
	for _, name := range names {
		for _, value := range query[name] {
			if value != "" {
				kept.Add(name, value)
			}
		}
	}
	return kept
}

// filters returns the parameters of the page for a list of the API. A parameter that is not the page's own goes along
// even if the page knows none of that name, so that the API refuses it: a list must not look narrower than it is.
func (v *visit) filters(own []string, names ...string) url.Values {
	query := v.r.URL.Query()
	kept := filtered(query, names...)
	for name, values := range query {
		if !slices.Contains(names, name) && !slices.Contains(own, name) {
			kept[name] = values
		}
	}
	return kept
}

// names answers with the names that a job's field offers.
func (v *visit) names() error {
	query := filtered(url.Values{"q": {v.param("job")}, "limit": {"20"}}, "q", "limit")
	list, err := call(v, client.Jobs, query)
	if err != nil {
		return err
	}
	return v.answer(http.StatusOK, "runs", "names", list.Data)
}
