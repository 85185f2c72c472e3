package definitions

import (
	"fmt"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
)

// Timetable compiles only the schedule of a definition, from its text, and its jitter; an empty jitter is an absent
// one. The timetable is no single job's: it does not know where in the jitter a job's slots are due.
func (d *Definitions) Timetable(schedule, jitter []byte) (*domain.Timetable, error) {
	var def domain.Definition
	if err := unmarshalPart(schedule, &def.Schedule); err != nil {
		return nil, fmt.Errorf("reading a schedule: %w", err)
	}
	if len(jitter) > 0 {
		_ = def.Jitter.UnmarshalText(jitter) // never fails
	}
	return domain.NewTimetable(uuid.Nil, def.WithDefaults(), d.jitter)
}
