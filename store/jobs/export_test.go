package jobs

import "punctual/scheduler/jobspec"

// CrossCheckBy replaces the cross-check of definitions that are written.
func (s *Jobs) CrossCheckBy(check func(*jobspec.Timetable) error) { s.crossCheck = check }
