package httpapi

import (
	"context"
	"time"

	"punctual/store/pg"
	"punctual/store/runs"
)

// RunChanges are a part of the feed of runs that have ended.
type RunChanges[T any] struct {
	Data  []T       `json:"data" doc:"The runs that have ended, in the order of the feed, as they are now."`
	Next  string    `json:"next" doc:"The cursor of what follows, now or later: after of the next request." example:"Y3Vyc29y"`
	More  bool      `json:"more" doc:"Whether more follows now." example:"false"`
	Lag   float64   `json:"lag_s" doc:"How long ago the next change was recorded, in seconds; 0: there is none. With more false, a transaction that is open for longer holds it up." example:"0"`
	Since time.Time `json:"since" doc:"The feed has the runs whose end was committed after this instant, as far as changes_kept keeps them."`
	Gone  int       `json:"gone" doc:"How many runs of this part are left out, because their retention has ended." example:"0"`
}

type listRunChangesInput struct {
	After string `query:"after" maxLength:"256" doc:"The next of an earlier response. Absent: the oldest change that is kept."`
	Limit int    `query:"limit" default:"100" minimum:"1" maximum:"500" doc:"The most runs of a response."`
	View
}

func (s *server) listRunChanges(
	ctx context.Context, tenant int32, in *listRunChangesInput,
) (*answer[RunChanges[ListedRun]], error) {
	page, err := s.Store.Changes.Read(ctx, tenant, in.After, in.Limit)
	if err != nil {
		return nil, err
	}
	found, gone, err := s.Store.Runs.InOrder(ctx, tenant, page.Runs)
	if err == nil && !in.short() {
		err = s.Store.Runs.FillCauses(ctx, tenant, found)
	}
	return show(RunChanges[ListedRun]{
		Data: pg.Column(found, func(r runs.Run) ListedRun { return ListedRun{r, in.short()} }),
		Next: page.Next, More: page.More, Lag: page.Lag.Seconds(), Since: page.Since.UTC(), Gone: gone,
	}, err)
}
