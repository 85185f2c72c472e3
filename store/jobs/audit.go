package jobs

import (
	"encoding/json"
	"time"

	"punctual/scheduler/domain"
	"punctual/store/audit"
	"punctual/store/runs"
)

// jobShot is a job as the audit log shows it: with its definition if the definition changed.
type jobShot struct {
	Version     int32           `json:"version"`
	State       domain.JobState `json:"state"`
	PausedUntil *time.Time      `json:"paused_until,omitempty"`
	Note        string          `json:"note,omitempty"`
	Restored    int32           `json:"restored_version,omitempty"`

	SkippedWhilePaused *runs.SkippedRange `json:"skipped_while_paused,omitempty"`

	Definition json.RawMessage `json:"definition,omitempty"`
}

// shot returns the job as it stands.
func (j *jobRow) shot() jobShot {
	return jobShot{
		Version: j.Version, State: j.State, PausedUntil: j.PausedUntil, Note: j.PauseNote,
		Definition: json.RawMessage(j.definition),
	}
}

// without leaves out the definition.
func (s jobShot) without() jobShot {
	s.Definition = nil
	return s
}

// masked leaves out the secrets.
func (s jobShot) masked() jobShot {
	s.Definition = json.RawMessage(audit.MaskDefinition(string(s.Definition)))
	return s
}

// change returns the entry of the audit log for a write of a held job. The entry is a pause or a resume if the write
// changed nothing else.
func (h *held) change(note string) audit.Change {
	c := audit.Change{Action: audit.JobUpdate, ID: h.ID, Job: h.ID, Name: h.Definition.Name}
	before, after := h.before, h.shot()
	if after.Note == "" {
		after.Note = note
	}
	switch {
	case h.State == domain.JobDeleted:
		c.Action, c.Before = audit.JobDelete, before.masked()
		return c
	case string(before.Definition) != h.definition:
		if after.Restored = h.restored; after.Restored > 0 {
			c.Action = audit.JobRestore
		}
		c.Before, c.After = before.masked(), after.masked()
		return c
	case h.State == domain.JobPaused:
		c.Action = audit.JobPause
	case before.State == domain.JobPaused:
		c.Action, after.SkippedWhilePaused = audit.JobResume, h.passed.slots()
	}
	c.Before, c.After = before.without(), after.without()
	return c
}
