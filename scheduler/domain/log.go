package domain

import (
	"fmt"

	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/jobspec"
	"punctual/scheduler/placeholder"
)

// LogURL returns where people read the log of the attempt, by the job's log_url; empty: the job has none.
func (a Assignment) LogURL() string {
	base, t, _, err := jobspec.SplitURL(a.Job.LogURL)
	if err != nil {
		return "" // another program wrote it
	}
	link := string(t.Append([]byte(base), a.values(), placeholder.InURL))
	if _, err := wire.CheckLink(link); err != nil {
		return ""
	}
	return link
}

// AnsweredLog returns where people read the log of an attempt, by the kept headers of its target's answer. note says
// why the target's URL is ignored. Both are empty if the target answered none.
func AnsweredLog(headers map[string]string) (link, note string) {
	answered := headers[wire.KeptLog]
	if answered == "" {
		return "", ""
	}
	if _, err := wire.CheckLink(answered); err != nil {
		return "", fmt.Sprintf("the Punctual-Log-Url that the target answered is ignored: it %v", err)
	}
	return answered, ""
}
