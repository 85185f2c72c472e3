package claim

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/days"
	"punctual/store/pg"
)

// fan is a follower that asks for the chore of its name, and what follows for it.
type fan struct {
	Nothing
	name  string
	fails error
	heard *[]string
}

func (f *fan) Follow(context.Context, pg.Querier, int32) (Following, error) {
	return f, f.fails
}
func (f *fan) Concerns(job *domain.Job) bool      { return job.Name == f.name }
func (f *fan) Starts(job *domain.Job) bool        { return f.Concerns(job) }
func (f *fan) QueueEvents(*pgx.Batch, []RunEvent) { *f.heard = append(*f.heard, f.name+" events") }
func (f *fan) QueueEnds(_ *pgx.Batch, _ []domain.Outcome, _ days.Day) {
	*f.heard = append(*f.heard, f.name+" ends")
}
func (f *fan) Asks() []string { return []string{f.name} }

func TestSeveralFollowersAreAsOne(t *testing.T) {
	var heard []string
	a, b := &fan{name: "a", heard: &heard}, &fan{name: "b", heard: &heard}
	both := followers{a, b}
	following, err := both.Follow(t.Context(), nil, pg.Everybody)
	if err != nil {
		t.Fatal(err)
	}
	following.QueueEvents(nil, nil)
	following.QueueEnds(nil, nil, days.AnyDay)
	if want := []string{"a events", "b events", "a ends", "b ends"}; !slices.Equal(heard, want) {
		t.Errorf("they were told %q, want %q", heard, want)
	}
	if got := following.Asks(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("they ask for %q", got)
	}
	for name, want := range map[string]bool{"a": true, "b": true, "c": false} {
		if got := following.Concerns(&domain.Job{Definition: jobspec.Definition{Name: name}}); got != want {
			t.Errorf("job %s concerns them: %t", name, got)
		}
	}
	b.fails = errors.New("away")
	_, err = both.Follow(t.Context(), nil, 1)
	if !errors.Is(err, b.fails) {
		t.Errorf("one fails, and the error is %v", err)
	}
}
