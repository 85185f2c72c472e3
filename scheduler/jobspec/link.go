package jobspec

import "fmt"

// Link is one edge of a chain: the end of a run of the job that has it triggers another job, once.
type Link struct {
	Job  string   `json:"job" doc:"Name or id of the job. Of a deleted job the id is shown." example:"send-report"`
	When LinkWhen `json:"when,omitempty" minLength:"1" enum:"succeeded,failed,ended" doc:"failed: dead, for any reason; ended: succeeded, dead or cancelled. Absent: succeeded."`
}

// LinkWhen is which end of a run triggers another job.
type LinkWhen string

// The ends that trigger.
const (
	WhenSucceeded LinkWhen = "succeeded"
	WhenFailed    LinkWhen = "failed" // dead, for whatever reason
	WhenEnded     LinkWhen = "ended"  // either of these, or cancelled
)

// withWhen returns the links with their defaults.
func withWhen(links []Link) []Link {
	if len(links) == 0 {
		return links
	}
	full := make([]Link, len(links))
	for i, l := range links {
		fill(&l.When, WhenSucceeded)
		full[i] = l
	}
	return full
}

// links checks what the other jobs need not be known for. No end may trigger a job twice.
func (c *checker) links(d Definition) {
	c.atMost("then", len(d.Then), "jobs", MaxLinks)
	first := map[string]LinkWhen{}
	for i, l := range withWhen(d.Then) {
		at := fmt.Sprintf("then[%d]", i)
		oneOf(c, at+".when", l.When, WhenSucceeded, WhenFailed, WhenEnded)
		other, twice := first[l.Job]
		switch {
		case l.Job == "":
			c.add(at+".job", "is required: the name or id of another job")
		case !NameForm.MatchString(l.Job):
			c.add(at+".job", "%q: %s", clip(l.Job), NameRule)
		case l.Job == d.Name:
			c.add(at+".job", "%q is the job itself: its runs would trigger each other for ever", l.Job)
		case twice && (other == l.When || other == WhenEnded || l.When == WhenEnded):
			c.add(at+".job", "%q is triggered by the same end already; each end triggers a job once", l.Job)
		}
		first[l.Job] = l.When
	}
}
