package dashboard

import (
	"net/url"
	"strings"

	"punctual/httpapi"
	"punctual/httpapi/problem"
)

// jobsView is the list of jobs.
type jobsView struct {
	Jobs    []httpapi.ListedJob
	Next    string
	Search  string
	Problem *problem.Problem
}

func (v *visit) jobs() error {
	view := jobsView{Search: strings.TrimSpace(v.r.URL.Query().Get("search"))}
	query := searched(view.Search)
	query.Set("limit", "50")
	if cursor := v.r.URL.Query().Get("cursor"); cursor != "" {
		query.Set("cursor", cursor)
	}
	list, err := v.api.Jobs(v.ctx(), query)
	if err != nil {
		if view.Problem = problemOf(err); view.Problem.Status >= 500 {
			return err
		}
	}
	view.Jobs, view.Next = list.Data, text(list.NextCursor)
	return v.show("jobs", "Jobs", view)
}

// searched returns the filters that a search means: name=value is a label, state:paused and queue:critical are what
// they say, name:daily is the beginning of a name, and all else is text in the name or the description.
func searched(search string) url.Values {
	query := url.Values{}
	var words []string
	for word := range strings.FieldsSeq(search) {
		name, value, ok := strings.Cut(word, ":")
		switch {
		case ok && (name == "state" || name == "queue" || name == "name"):
			query.Set(name, value)
		case strings.Contains(word, "="):
			query.Add("label", word)
		default:
			words = append(words, word)
		}
	}
	if len(words) > 0 {
		query.Set("q", strings.Join(words, " "))
	}
	return query
}
