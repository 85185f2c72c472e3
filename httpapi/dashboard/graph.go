package dashboard

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
)

// node is a step in the drawing of a workflow.
type node struct {
	Name      string
	Note      string // its second line
	Status    string // colours it; empty: the drawing is of no run
	Title     string
	Run       string // to which it leads; empty: to none
	DependsOn []string
	Ended     bool // it starts however these have ended
}

// The sizes of a drawing, in pixels.
const (
	nodeWidth, nodeHeight = 200, 46
	nodeGap, bendHeight   = 14, 16
	layerGap              = 56
)

// spot is where a node stands, or where edges to a node pass a layer between.
type spot struct {
	node   int // the node, or the one to which the edges lead
	bend   bool
	layer  int
	y      float64 // of its middle
	before []*spot
}

func (s *spot) height() float64 {
	if s.bend {
		return bendHeight
	}
	return nodeHeight + nodeGap
}

// graph draws the steps of a workflow from left to right. Each stands right of all that it depends on. An edge that
// follows from others is left out.
func graph(nodes []node) template.HTML {
	if len(nodes) == 0 {
		return ""
	}
	layers := layersOf(nodes)
	arrange(layers)
	top, bottom := 0.0, 0.0
	for _, layer := range layers {
		first, last := layer[0], layer[len(layer)-1]
		top, bottom = min(top, first.y-first.height()/2), max(bottom, last.y+last.height()/2)
	}
	wide, tall := len(layers)*(nodeWidth+layerGap)-layerGap+2, int(bottom-top)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="graph" role="group" aria-label="%s" viewBox="-1 %.1f %d %d" width="%d" height="%d">`,
		plural(len(nodes), "step"), top, wide, tall, wide, tall)
	var edges, ended strings.Builder
	for _, layer := range layers {
		for _, s := range layer {
			s.drawEdges(map[bool]*strings.Builder{false: &edges, true: &ended}[nodes[s.node].Ended])
		}
	}
	fmt.Fprintf(&b, `<path class="edge" d="%s"/><path class="edge ended" d="%s"/>`, edges.String(), ended.String())
	for _, layer := range layers {
		for _, s := range layer {
			if !s.bend {
				nodes[s.node].draw(&b, s.layer*(nodeWidth+layerGap), s.y-nodeHeight/2)
			}
		}
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) //nolint:gosec // everything in it is escaped or a number
}

func (n node) draw(b *strings.Builder, x int, y float64) {
	open, end := `<g>`, `</g>`
	if n.Run != "" {
		open, end = `<a href="/runs/`+n.Run+`">`, `</a>`
	}
	name, note := template.HTMLEscapeString(shortened(n.Name, 20)), template.HTMLEscapeString(n.Note)
	fmt.Fprintf(b, `%s<title>%s</title><svg x="%d" y="%.1f" width="%d" height="%d" class="node %s">`, open,
		template.HTMLEscapeString(n.Title), x, y, nodeWidth, nodeHeight, n.Status)
	fmt.Fprintf(b, `<rect class="box" x="0.5" y="0.5" width="%d" height="%d" rx="6"/>`, nodeWidth-1, nodeHeight-1)
	left := 12
	if n.Status != "" {
		left = 18
		fmt.Fprintf(b, `<rect class="state" x="6" y="8" width="5" height="%d" rx="2"/>`, nodeHeight-16)
	}
	fmt.Fprintf(b, `<text class="name" x="%d" y="19">%s</text><text x="%d" y="36">%s</text></svg>%s`,
		left, name, left, note, end)
}

// drawEdges draws the edges that end at s, with the head of an arrow at a node.
func (s *spot) drawEdges(b *strings.Builder) {
	x := s.layer * (nodeWidth + layerGap)
	for _, from := range s.before {
		fmt.Fprintf(b, "M%d %.1fC%d %.1f %d %.1f %d %.1f",
			x-layerGap, from.y, x-layerGap/2, from.y, x-layerGap/2, s.y, x, s.y)
	}
	if s.bend {
		fmt.Fprintf(b, "M%d %.1fh%d", x, s.y, nodeWidth)
	} else if len(s.before) > 0 {
		fmt.Fprintf(b, "M%d %.1fl6 4l-6 4", x-6, s.y-4)
	}
}

// layersOf puts each node a layer after the last of those that it depends on. Edges to it from further left share a
// bend in each layer that they pass.
func layersOf(nodes []node) [][]*spot {
	depth, edges := edgesOf(nodes)
	layers := make([][]*spot, slices.Max(depth)+1)
	add := func(s *spot) *spot {
		layers[s.layer] = append(layers[s.layer], s)
		return s
	}
	spots := make([]*spot, len(nodes))
	for i := range nodes {
		spots[i] = add(&spot{node: i, layer: depth[i]})
	}
	for i, dependsOn := range edges {
		entries := map[int]*spot{depth[i]: spots[i]} // by layer: what edges to the node lead to
		first := depth[i]
		for _, on := range dependsOn {
			first = min(first, depth[on]+1)
		}
		for layer := depth[i] - 1; layer >= first; layer-- {
			entries[layer] = add(&spot{node: i, layer: layer, bend: true})
			entries[layer+1].before = append(entries[layer+1].before, entries[layer])
		}
		for _, on := range dependsOn {
			entry := entries[depth[on]+1]
			entry.before = append(entry.before, spots[on])
		}
	}
	return layers
}

// edgesOf returns the layer of each node, and the nodes that it depends on without others between.
func edgesOf(nodes []node) (depth []int, edges [][]int) {
	index := make(map[string]int, len(nodes))
	for i, n := range nodes {
		index[n.Name] = i
	}
	depth, edges = make([]int, len(nodes)), make([][]int, len(nodes))
	above := make([]map[int]bool, len(nodes)) // what each depends on, others between or not
	for i := range nodes {
		above[i] = map[int]bool{}
	}
	for range nodes { // a path has no more edges
		for i, n := range nodes {
			for _, on := range n.DependsOn {
				depth[i] = min(max(depth[i], depth[index[on]]+1), len(nodes)-1)
				above[i][index[on]] = true
				maps.Copy(above[i], above[index[on]])
			}
		}
	}
	for i, n := range nodes {
		for _, on := range n.DependsOn {
			if !slices.ContainsFunc(n.DependsOn, func(other string) bool { return above[index[other]][index[on]] }) {
				edges[i] = append(edges[i], index[on])
			}
		}
	}
	return depth, edges
}

// arrange orders each layer by where the edges to it come from, so that few of them cross, and puts its middle on that
// of the drawing.
func arrange(layers [][]*spot) {
	for _, layer := range layers {
		from, y := map[*spot]float64{}, 0.0
		for _, s := range layer {
			y -= s.height() / 2
			for _, before := range s.before {
				from[s] += before.y / float64(len(s.before))
			}
		}
		slices.SortStableFunc(layer, func(a, b *spot) int { return cmp.Compare(from[a], from[b]) })
		for _, s := range layer {
			s.y = y + s.height()/2
			y += s.height()
		}
	}
}
