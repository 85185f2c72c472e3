package dashboard

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"punctual/httpapi"
	"punctual/httpapi/client"
	"punctual/httpapi/problem"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/jobs"
	"punctual/store/runs"
)

// jobsView is the list of jobs.
type jobsView struct {
	Jobs    []httpapi.ListedJob
	Next    string
	Search  string
	Whole   bool // an operation can select what the search selects
	Problem *problem.Problem
}

// Queues reports whether the jobs of the list say which queue they are in: not where all are in the default one.
func (j jobsView) Queues() bool {
	return slices.ContainsFunc(j.Jobs, func(job httpapi.ListedJob) bool { return job.Queue != jobspec.DefaultQueue })
}

// Unread reports whether the newest runs were not read in time.
func (j jobsView) Unread() bool {
	return slices.ContainsFunc(j.Jobs, func(job httpapi.ListedJob) bool { return job.Recent != nil && job.Recent.Unread })
}

func (v *visit) jobs() error {
	view := jobsView{Search: strings.TrimSpace(v.param("search"))}
	query := searched(view.Search)
	maps.Copy(query, v.filters([]string{"search"}, "cursor"))
	view.Whole = query.Get("failing")+query.Get("overdue") == ""
	query.Set("limit", "50")
	query.Set("recent", strconv.Itoa(runs.MostRecent))
	list, err := call(v, client.Jobs, query)
	view.Problem, err = refused(err)
	view.Jobs, view.Next = list.Data, text(list.NextCursor)
	return v.shows(err, "jobs", "Jobs", view)
}

// searched returns the filters that a search means: name=value is a label, state:paused and queue:critical are what
// they say, name:daily is the beginning of a name, operation:ID is what that operation paused, and all else is text in
// the name or the description. state:failing and state:overdue are no states of a job, but people look for them.
func searched(search string) url.Values {
	query := url.Values{}
	var words []string
	for word := range strings.FieldsSeq(search) {
		name, value, ok := strings.Cut(word, ":")
		switch {
		case ok && name == "state" && slices.Contains([]string{"failing", "overdue"}, value):
			query.Set(value, "true")
		case ok && name == "operation":
			query.Set("paused_by_operation", value)
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

// selected returns the jobs that a search selects, for an operation. An operation cannot select by what changes while
// it works: its error is a problem.
func selected(search string) (s httpapi.JobSelection, err error) {
	query := searched(search)
	if query.Get("failing")+query.Get("overdue") != "" {
		return s, problem.Invalid(problem.At("body.filter.state", "failing and overdue select no jobs for an operation; "+
			"search by label, name, queue or state"))
	}
	return httpapi.JobSelection{
		State: domain.JobState(query.Get("state")), Queue: query.Get("queue"), Name: query.Get("name"), Q: query.Get("q"),
		Labels: labelsOf(query["label"]), PausedByOperation: query.Get("paused_by_operation"),
	}, nil
}

// labelsOf reads labels that are written as name=value.
func labelsOf(list []string) map[string]string {
	labels := map[string]string{}
	for _, label := range list {
		name, value, _ := strings.Cut(label, "=")
		labels[name] = value
	}
	return labels
}

// pairsOf writes names and values, such as labels, by their names.
func pairsOf(values map[string]string, between string) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		list = append(list, name+between+values[name])
	}
	return list
}

// changeJobs pauses, resumes or deletes all jobs that a search selects: it counts them, and starts the operation once
// the visitor has seen the number.
func (v *visit) changeJobs() error {
	search := v.field("search")
	action := jobs.Action(v.field("action"))
	filter, err := selected(search)
	if err != nil {
		return err
	}
	if v.field("sure") == "" {
		n, err := call(v, client.CountJobs, httpapi.JobsInput{Filter: &filter, DryRun: true}, string(action))
		if err != nil {
			return err
		}
		return v.ask(sureView{
			Verb: string(action), Count: n.Matched, Thing: "job", Path: "/jobs", Pause: action == jobs.PauseMany,
			Back: "/jobs?" + url.Values{"search": {search}}.Encode(), Danger: action == jobs.DeleteMany,
		})
	}
	in := httpapi.PauseJobsInput{JobsInput: httpapi.JobsInput{Filter: &filter, Note: v.field("note")}}
	if in.MaxPerSecond, err = v.rate(); err != nil {
		return err
	}
	switch action {
	case jobs.PauseMany:
		in.Until = v.instant("until")
	case jobs.ResumeMany, jobs.DeleteMany:
	default:
		return problem.New(problem.CodeMalformed, "The form does not say what is to be done with the jobs.")
	}
	operation, err := call(v, client.ChangeJobs, in, string(action))
	return v.done(err, "/operations/"+operation.ID.String(), "The operation has started.")
}

// sureView asks before many things are changed at once.
type sureView struct {
	Verb   string // such as replay
	Count  int
	Thing  string // what there are Count of
	Path   string // where the form is sent
	Back   string
	Form   url.Values // as it was sent
	Pause  bool       // ask for its end, too
	Latest bool       // ask whether only the newest of each job is meant
	Danger bool
}

// ask shows what is about to be changed.
func (v *visit) ask(view sureView) error {
	view.Form = v.r.PostForm
	return v.render(http.StatusOK, "sure", "Sure?", view)
}

// rate is how many things are to be changed in a second at most; nil: as many as can be.
func (v *visit) rate() (*int, error) {
	field := v.field("max_per_second")
	if field == "" {
		return nil, nil
	}
	n, err := strconv.Atoi(field)
	if err != nil {
		return nil, problem.Invalid(problem.At("body.max_per_second", strconv.Quote(field)+" is not a number such as 50"))
	}
	return &n, nil
}
