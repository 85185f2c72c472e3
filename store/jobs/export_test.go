package jobs

import "punctual/scheduler/domain"

// CrossCheckBy replaces the cross-check of definitions that are written.
func (s *Jobs) CrossCheckBy(check func(*domain.Timetable) error) { s.crossCheck = check }
