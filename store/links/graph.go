package links

import (
	"maps"
	"slices"

	"github.com/google/uuid"

	"punctual/store/pg"
)

// graph is which jobs follow which.
type graph struct{ next map[uuid.UUID][]uuid.UUID }

// worst returns a circle, or else the longest path.
func (g *graph) worst() (path []uuid.UUID, circle bool) {
	longest := map[uuid.UUID][]uuid.UUID{} // from a job on, last job first
	var trail []uuid.UUID
	var visit func(uuid.UUID) bool
	visit = func(job uuid.UUID) bool {
		if _, seen := longest[job]; seen {
			return false
		}
		if at := slices.Index(trail, job); at >= 0 {
			path = slices.Clone(trail[at:])
			return true
		}
		trail = append(trail, job)
		var best []uuid.UUID
		for _, next := range g.next[job] {
			if visit(next) {
				return true
			}
			if rest := longest[next]; len(rest) > len(best) {
				best = rest
			}
		}
		trail = trail[:len(trail)-1]
		longest[job] = append(slices.Clone(best), job)
		return false
	}
	for _, job := range slices.SortedFunc(maps.Keys(g.next), pg.CompareIDs) {
		if visit(job) {
			return path, true
		}
		if len(longest[job]) > len(path) {
			path = longest[job]
		}
	}
	path = slices.Clone(path)
	slices.Reverse(path)
	return path, false
}
