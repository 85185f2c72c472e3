package jobs

import "punctual/scheduler/spec"

// CrossCheckBy replaces the cross-check of definitions that are written.
func (s *Jobs) CrossCheckBy(check func(*spec.Timetable) error) { s.crossCheck = check }
