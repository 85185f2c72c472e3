package dashboard

import (
	"fmt"
	"net/url"
	"strconv"

	"punctual/httpapi"
	"punctual/store/audit"
	"punctual/store/jobs"
)

// changesView is what was changed in a job, and by whom.
type changesView struct {
	Job          httpapi.Job
	Changes      []change
	Next         string
	Versions     []jobs.Version
	NextVersions string
	Compared     *jobs.WholeVersion // against the present one
}

func (v *visit) changes(job httpapi.Job) error {
	view, id := changesView{Job: job}, job.ID.String()
	query := filtered(v.r.URL.Query(), "cursor")
	query.Set("limit", "50")
	list, err := v.api.JobChanges(v.ctx(), id, query)
	if err != nil {
		return err
	}
	view.Changes, view.Next = changesOf(list.Data, func(c audit.JobChange) change {
		return change{JobChange: c}
	}), text(list.NextCursor)
	former := url.Values{"limit": {"10"}}
	if cursor := v.param("versions"); cursor != "" {
		former.Set("cursor", cursor)
	}
	versions, err := v.api.Versions(v.ctx(), id, former)
	if err != nil {
		return err
	}
	view.Versions, view.NextVersions = versions.Data, text(versions.NextCursor)
	if number, err := strconv.ParseInt(v.param("version"), 10, 32); err == nil {
		compared, err := v.api.Version(v.ctx(), id, int32(number), job.Version)
		if err != nil {
			return err
		}
		view.Compared = &compared
	}
	return v.show("changes", job.Name, view)
}

// restoreVersion restores a version, unless the job is another than the visitor has seen.
func (v *visit) restoreVersion() error {
	number, _ := strconv.ParseInt(v.field("version"), 10, 32) // 0 is no version
	api := v.api.WithHeader("If-Match", fmt.Sprintf("%q", v.field("seen")))
	_, err := api.RestoreVersion(v.ctx(), v.part("job"), int32(number))
	return v.done(err, v.jobPath()+"/changes", fmt.Sprintf("Version %d is restored.", number))
}
